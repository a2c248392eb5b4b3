"""Loads rows through a writer that may be killed or replaced during requests."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import field

import anyio
import httpx
import msgpack
from anyio.abc import TaskGroup

from shale.core.lazy_dataclass import dataclass
from shale_cli.demo.daemons import Daemon

ROWS_PER_BATCH = 1_000
SENDERS = 4
RETRY_DELAY_S = 0.1
REQUEST_TIMEOUT_S = 30

Batch = Sequence[tuple[bytes, bytes]]


@dataclass(slots=True)
class StaleWrites:
    """Results of requests that a replaced writer still had."""

    rejected: int = 0
    acknowledged: int = 0


@dataclass(slots=True)
class _Active:
    writer: Daemon
    replaced: anyio.Event = field(default_factory=anyio.Event)


class Loader:
    """Sends batches to the active writer until each is acknowledged as durable.

    Retrying a batch after a lost response is harmless: it writes the same rows under the same keys.
    """

    def __init__(self, tasks: TaskGroup, client: httpx.AsyncClient, writer: Daemon) -> None:
        self._tasks = tasks
        self._client = client
        self._active = _Active(writer)
        self.rows_acknowledged = 0
        self.requests_repeated = 0
        self.stale = StaleWrites()

    @classmethod
    @asynccontextmanager
    async def open(cls, writer: Daemon) -> "AsyncIterator[Loader]":
        """Open a loader whose requests end with the block."""
        async with httpx.AsyncClient(timeout=REQUEST_TIMEOUT_S) as client, anyio.create_task_group() as tasks:
            yield cls(tasks, client, writer)

    def switch_to(self, writer: Daemon) -> None:
        """Send all unacknowledged batches to this writer from now on."""
        before, self._active = self._active, _Active(writer)
        before.replaced.set()

    async def load(self, batches: Sequence[Batch], on_progress: Callable[[int], None]) -> None:
        """Load all batches; return when every row is durable."""
        send, receive = anyio.create_memory_object_stream[Batch](max_buffer_size=SENDERS)
        async with anyio.create_task_group() as senders:
            for _ in range(SENDERS):
                senders.start_soon(self._send_all, receive.clone(), on_progress)
            receive.close()
            async with send:
                for batch in batches:
                    await send.send(batch)

    async def _send_all(self, batches: AsyncIterator[Batch], on_progress: Callable[[int], None]) -> None:
        async for batch in batches:
            body = encode_batch(batch)
            while not await self._try_send(body):
                self.requests_repeated += 1
                await anyio.sleep(RETRY_DELAY_S)
            self.rows_acknowledged += len(batch)
            on_progress(len(batch))

    async def _try_send(self, body: bytes) -> bool:
        """Make one attempt.  If the writer is replaced meanwhile, the attempt continues as a stale write."""
        active = self._active
        outcome: list[bool] = []
        answered = anyio.Event()

        async def attempt() -> None:
            acknowledged = await self._post(active.writer, body)
            if answered.is_set():
                self._count_stale(acknowledged)
            outcome.append(acknowledged)
            answered.set()

        async def watch() -> None:
            await active.replaced.wait()
            answered.set()

        self._tasks.start_soon(attempt)
        async with anyio.create_task_group() as watchers:
            watchers.start_soon(watch)
            await answered.wait()
            watchers.cancel_scope.cancel()
        return bool(outcome) and outcome[0]

    def _count_stale(self, acknowledged: bool) -> None:
        if acknowledged:
            self.stale.acknowledged += 1
        else:
            self.stale.rejected += 1

    async def send_stale(self, writer: Daemon, batch: Batch) -> None:
        """Write through a writer that has been replaced; counted like every other stale write."""
        self._count_stale(await self._post(writer, encode_batch(batch)))

    async def _post(self, writer: Daemon, body: bytes) -> bool:
        try:
            answer = await self._client.post(
                f"{writer.url}/v1/batch", content=body, headers={"content-type": "application/msgpack"}
            )
        except httpx.TransportError:
            return False
        return answer.is_success


def encode_batch(batch: Batch) -> bytes:
    """Encode the body of ``POST /v1/batch`` as msgpack."""
    return bytes(msgpack.packb({"ops": [("put", key, value) for key, value in batch]}) or b"")
