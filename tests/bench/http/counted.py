"""``python -m tests.bench.http.counted tracing|limits``: requests to a writer without sockets, to count instructions.

Everything between the transport and the database is that of the daemon.  The transports are ours, so that nothing
waits, and the database is in memory, and flushes nothing.
"""

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import uvicorn
from anyio.abc import TaskGroup
from pydantic import SecretStr
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

import shale
from shale.api.build import build_writer_api
from shale.api.settings import WritesHttpSection
from shale.env import Env
from shale.resp.backend import Backend
from shale.resp.commands.command_table import COMMANDS, WRITER_COMMANDS
from shale.resp.connection import Connection
from shale.resp.options import RespOptions
from shale.server.front_page import FrontPage
from shale.service.access import AccessTokens, Quotas, Rates, Role
from shale.service.audit import AuditMiddleware
from shale.service.config.tracing_section import TracingSection
from shale.service.exported_traces import exported_traces
from shale.service.http.connection import BoundedProtocol
from shale.service.process import PortServices
from shale.service.runtime_tuning import has_uvloop
from shale.telemetry.log_output import configure_logging
from shale.telemetry.metrics import Metrics
from tests.bench.http.instructions import InstructionCounter

QUIET: Any = {"flush_interval": 3600, "manifest_poll_interval": 3600}
"""Nothing happens in the background: it would count, and more of it if the machine is busy."""
ROUNDS = 1
REQUESTS = 128
WARM = 100
TOKEN = "t" * 32
ADMIN = "/v1/admin/"
VALUE = b"v" * 100


class _Wire(asyncio.Transport):
    """The transport of a client that sends one request after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.answered = asyncio.Event()

    def write(self, data: Any) -> None:
        """Take a part of an answer."""
        self.answered.set()

    def is_closing(self) -> bool:
        """Return that it stays open."""
        return False

    def close(self) -> None:
        """Close nothing."""

    def abort(self) -> None:
        """Close nothing."""

    def pause_reading(self) -> None:
        """Never be asked twice."""

    def resume_reading(self) -> None:
        """Never be asked twice."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Have no buffer."""

    def get_write_buffer_size(self) -> int:
        """Have no buffer."""
        return 0


class _Http(BoundedProtocol):
    """A connection that says when it has answered."""

    done: asyncio.Event

    def on_response_complete(self) -> None:
        """Note the end of an answer."""
        super().on_response_complete()
        self.done.set()


Ask = Callable[[bytes], Awaitable[None]]


def http_client(app: Any) -> Ask:
    """Connect to an application."""
    config = uvicorn.Config(app, http=_Http, lifespan="off", log_config=None, access_log=False, proxy_headers=False)
    protocol = _Http(config, ServerState(), {}, asyncio.get_running_loop())
    protocol.done = asyncio.Event()
    protocol.connection_made(_Wire())

    async def ask(request: bytes) -> None:
        protocol.done.clear()
        protocol.data_received(request)
        await protocol.done.wait()

    return ask


def resp_client(backend: Backend, group: TaskGroup) -> Ask:
    """Connect to the Redis port."""
    wire = _Wire()
    connection = Connection(backend, WRITER_COMMANDS, lambda one: group.start_soon(one.run))
    connection.connection_made(wire)

    async def ask(request: bytes) -> None:
        wire.answered.clear()
        connection.data_received(request)
        await wire.answered.wait()

    return ask


class Port:
    """One database and its ports."""

    def __init__(self, db: shale.Db, group: TaskGroup) -> None:
        self.env = Env.system(cpu_threads=1)
        self.metrics = Metrics(db="orders")
        self.counter = InstructionCounter()
        tokens = [(SecretStr(TOKEN), Role.ADMIN)]
        self.quotas = Quotas(self.env.clock, self.metrics)
        self.tokens = AccessTokens(tokens, quotas=self.quotas)
        services = PortServices(tokens=self.tokens)
        api = build_writer_api(db, WritesHttpSection(), self.metrics, self.env, max_key_bytes=1024, services=services)
        http = http_client(FrontPage(api, role="writer", admin_host="127.0.0.1", admin_port=9464))
        self.resp = resp_client(Backend(db, self.env, RespOptions(), services, COMMANDS, metrics=self.metrics), group)
        pipeline = _command("GET", "0") * 16
        self.kinds: dict[str, tuple[Ask, bytes]] = {
            "PUT": (http, _request("PUT", "/v1/kv/0", VALUE)),
            "GET": (http, _request("GET", "/v1/kv/0")),
            "RESP SET": (self.resp, _command("SET", "0", VALUE.decode())),
            "RESP GET": (self.resp, _command("GET", "0")),
            "RESP 16 GETs": (self.resp, pipeline),
        }

    async def warm(self) -> None:
        """Send some requests of each kind, so that the interpreter has specialized its code."""
        await self.resp(_command("AUTH", TOKEN))
        for kind in self.kinds:
            await self.send(kind, WARM)

    async def send(self, kind: str, count: int) -> None:
        """Send equal requests."""
        ask, request = self.kinds[kind]
        for _ in range(count):
            await ask(request)

    async def count(self, kind: str, name: str) -> None:
        """Count the instructions of requests."""
        await self.prepare(kind)
        self.counter.start()
        await self.send(kind, REQUESTS)
        self.counter.stop(f"{kind}, {name}")

    async def prepare(self, kind: str) -> None:
        """Send some requests, and collect garbage: the next collection then comes after equally many objects."""
        await self.send(kind, 2)
        gc.collect()


def _request(method: str, path: str, body: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
    return f"{head}X-Shale-Durability: memory\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def _command(*words: str) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word.encode()) for word in words)


@asynccontextmanager
async def served() -> AsyncIterator[Port]:
    """Open a database, and connect to its ports."""
    async with (
        shale.Db.open("memory:///orders", compactor=False, gc=False, **QUIET) as db,
        anyio.create_task_group() as group,
    ):
        port = Port(db, group)
        await port.warm()
        yield port
        group.cancel_scope.cancel()


async def count_tracing() -> None:
    """Requests without traces, with traces of which none is kept, and with traces that are all kept and exported."""
    async with served() as port:
        for _ in range(ROUNDS):
            for kind in port.kinds:
                await port.count(kind, "off")
                with exported_traces(_traces(0.0), port.env, role="writer", db="orders"):
                    await port.count(kind, "none")
                kept = exported_traces(_traces(1.0), port.env, role="writer", db="orders")
                kept.__enter__()
                await port.prepare(kind)
                port.counter.start()
                await port.send(kind, REQUESTS)
                kept.__exit__(None, None, None)
                port.counter.stop(f"{kind}, all")


def _traces(ratio: float) -> TracingSection:
    return TracingSection(enabled=True, sample_ratio=ratio)


async def count_limits() -> None:
    """Requests without and with quotas, and calls of the admin port without and with the audit log."""
    async with served() as port:
        plain = http_client(_answer)
        audited = http_client(AuditMiddleware(_answer, ADMIN, port.tokens, port.metrics, port.env.ids))
        port.kinds |= {"POST, admin": (plain, _request("POST", f"{ADMIN}log-level"))}
        port.kinds |= {"POST, audited": (audited, _request("POST", f"{ADMIN}log-level"))}
        port.kinds |= {"GET, admin": (plain, _request("GET", f"{ADMIN}jobs"))}
        port.kinds |= {"GET, audited": (audited, _request("GET", f"{ADMIN}jobs"))}
        await port.warm()
        for _ in range(ROUNDS):
            for kind in port.kinds:
                await port.count(kind, "off")
                port.quotas.replace(dict.fromkeys(Role, Rates(requests=1e9, size_bytes=1e12)))
                await port.count(kind, "on")
                port.quotas.replace({})


async def _answer(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer like a call that does nothing."""
    del scope, receive
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def main(subject: str) -> None:
    """Count the instructions of one subject."""
    configure_logging()
    work = {"tracing": count_tracing, "limits": count_limits}[subject]
    anyio.run(work, backend_options={"use_uvloop": has_uvloop()})


if __name__ == "__main__":
    main(sys.argv[1])
