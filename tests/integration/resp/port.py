"""A served database, and clients that speak to it over the loopback."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio
from pydantic import SecretStr

import shale
from shale.env import Env
from shale.resp.backend import Backend
from shale.resp.options import RespOptions
from shale.resp.server import serve_resp
from shale.service.access import AccessTokens, Role
from shale.service.http.server import open_socket
from shale.service.memory.process_memory import ProcessMemory
from shale.service.process import PortServices
from shale.store.memory import MemoryStore
from shale.telemetry.metrics import Metrics
from tests.unit.resp.harness import decode_one

Scenario = Callable[["Port"], Awaitable[None]]


def encoded(*words: str | bytes) -> bytes:
    args = [word if isinstance(word, bytes) else word.encode() for word in words]
    return b"*%d\r\n" % len(args) + b"".join(b"$%d\r\n%b\r\n" % (len(arg), arg) for arg in args)


class Line:
    """One connection of a client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._data = b""

    async def answer(self) -> Any:
        while True:
            try:
                value, self._data = decode_one(self._data)
            except (ValueError, AssertionError):
                more = await self.reader.read(1 << 16)
                if not more:
                    raise EOFError from None
                self._data += more
            else:
                return value

    async def say(self, *words: str | bytes) -> Any:
        self.writer.write(encoded(*words))
        return await self.answer()

    async def rest(self) -> bytes:
        """Read until the end of the connection."""
        data, self._data = self._data, b""
        try:
            return data + await self.reader.read()
        except ConnectionResetError:
            return data


class StallingStore(MemoryStore):
    """A store that takes no objects while its gate is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = anyio.Event()
        self.gate.set()

    async def put(self, *args: Any, **options: Any) -> Any:
        await self.gate.wait()
        return await super().put(*args, **options)


class Port:
    """A served database."""

    def __init__(self, db: shale.Db, backend: Backend, number: int, metrics: Metrics, store: StallingStore) -> None:
        self.db = db
        self.store = store
        self.backend = backend
        self.number = number
        self.metrics = metrics

        self.lines: list[Line] = []

    async def connect(self) -> Line:
        line = Line(*await asyncio.open_connection("127.0.0.1", self.number))
        self.lines.append(line)
        return line

    async def hang_up(self) -> None:
        """Close every connection that was opened."""
        for line in self.lines:
            line.writer.close()
            with contextlib.suppress(ConnectionError):
                await line.writer.wait_closed()


@contextlib.asynccontextmanager
async def port(
    *,
    token: str | None = None,
    drain_timeout_s: float = 10.0,
    flush_interval: float = 0.01,
    memory: ProcessMemory | None = None,
    **options: Any,
) -> AsyncIterator[Port]:
    metrics, store = Metrics(db="db"), StallingStore()
    listener = open_socket("127.0.0.1", 0, setting="resp.port")
    number = listener.getsockname()[1]
    async with (
        shale.Db.open(
            "db",
            store=store,
            flush_interval=flush_interval,
            l0_sst_size_bytes=1 << 20,
            max_unflushed_bytes=2 << 20,
        ) as db,
        serve_resp(
            db,
            listener,
            Env.system(),
            metrics,
            RespOptions(**options),
            services=PortServices(
                tokens=None if token is None else AccessTokens([(SecretStr(token), Role.WRITE)]),
                memory=ProcessMemory() if memory is None else memory,
            ),
            drain_timeout_s=drain_timeout_s,
        ) as backend,
    ):
        yield Port(db, backend, number, metrics, store)


def serve(scenario: Scenario, **options: Any) -> None:
    async def run() -> None:
        async with asyncio.timeout(60):
            async with port(**options) as served:
                await scenario(served)
            await served.hang_up()

    asyncio.run(run())


def samples_of(served: Port) -> dict[tuple[str, str], float]:
    """Return values by name and labels, without the database."""
    served.metrics.refresh()
    return {
        (sample.name, ",".join(value for label, value in sorted(sample.labels.items()) if label != "db")): sample.value
        for family in served.metrics.registry.collect()
        for sample in family.samples
    }


def waits(served: Port, category: str, le: str = "0.1") -> tuple[float, float]:
    """Return how many commands of a category were answered, and how many of them in this time."""
    name, samples = "shale_resp_command_duration_seconds", samples_of(served)
    return samples[f"{name}_count", category], samples[f"{name}_bucket", f"{category},{le}"]


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - the server does not tell
        await asyncio.sleep(0.01)
