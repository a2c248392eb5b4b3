"""A writer and collector with two-phase creates that kills itself after a chosen request.

    python -m tests.integration.two_phase.killed_process FOLDER RECORDS_URL ROUND STEP SKIP PARALLEL

It writes durable rows, prints the number of each row that is durable, and collects garbage at the end.  ``PARALLEL`` is
``max_parallel_writes`` of the database; if it is above 1, rows do not wait for the row before.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

import shale
from shale.env import Env
from shale.gc.collector import Collector
from shale.gc.options import GcOptions, TaskOptions
from shale.store.local_store.adapter import LocalStore
from shale.store.port import ObjectStore
from shale.store.retry import RetryingStore
from shale.store.transactional.connect import open_transactional_store
from shale.store.two_phase.store import TwoPhaseStore
from shale.telemetry.metrics import Metrics
from tests.unit.store.two_phase.plain_store import OBJECT_CHANGES, RECORD_CHANGES, Requests

ROWS = 6
PAUSE_S = 0.001
COUNTER = b"counter"
NO_LIMIT: dict[str, Any] = {"l0_max_ssts": 10_000, "l0_max_ssts_per_key": 10_000}
"""There is no compactor."""


class KillingRequests(Requests):
    """Ends this process with SIGKILL after one request has taken effect, before its caller knows."""

    def __init__(self, step: str, skip: int) -> None:
        super().__init__()
        self._step = step
        self._left = skip

    async def call(self, name: str, send: Callable[[], Awaitable[Any]]) -> Any:
        """Send one request."""
        result = await super().call(name, send)
        if name == self._step:
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            self._left -= 1
        return result


def row_of(round_: int, number: int) -> tuple[bytes, bytes]:
    """Return the key and the value of a row."""
    return b"%05d/%02d" % (round_, number), b"value %d/%d" % (round_, number)


def counter_of(round_: int, number: int) -> bytes:
    """Return the value of the counter after a row; values ascend."""
    return b"%05d/%02d" % (round_, number)


def open_two_phase(folder: str, records_url: str, requests: Requests | None = None) -> RetryingStore:
    """Return the store of one process: a directory without conditions, and records."""
    counter = requests if requests is not None else Requests()
    objects = counter.counted(LocalStore(folder), OBJECT_CHANGES)
    records = counter.counted(open_transactional_store(records_url), RECORD_CHANGES)
    env = Env.system()
    return RetryingStore(TwoPhaseStore(objects, records, env), env)


async def collect(store: ObjectStore) -> None:
    """Delete everything that nothing needs, whatever its age."""
    now = TaskOptions(min_age_s=0.0)
    options = GcOptions(manifest=now, wal=now, compacted=now, compactions=now)
    await Collector(store, "db", Env.system(), options, Metrics()).run_once()


async def write(store: ObjectStore, round_: int, parallel: int) -> None:
    """Write the rows of a round."""
    options = {**NO_LIMIT, "max_parallel_writes": parallel}
    async with (
        shale.Db.open("db", store=store, flush_interval=0, **options) as db,
        anyio.create_task_group() as waiting,
    ):
        for number in range(ROWS):
            key, value = row_of(round_, number)
            batch = shale.WriteBatch()
            batch.put(key, value)
            batch.put(COUNTER, counter_of(round_, number))
            handle = await db.write(batch)
            if parallel == 1:
                await report(handle, number)
            else:
                waiting.start_soon(report, handle, number)
                await anyio.sleep(PAUSE_S)  # so that the row gets a WAL file of its own
            if number == ROWS // 2:
                await db.flush("memtable")


async def report(handle: shale.WriteHandle, number: int) -> None:
    """Print the number of a row once it is durable."""
    await handle.durable()
    print(number, flush=True)


async def main(folder: str, records_url: str, round_: str, step: str, skip: str, parallel: str) -> None:
    """Run one process to its end."""
    store = open_two_phase(folder, records_url, KillingRequests(step, int(skip)))
    await write(store, int(round_), int(parallel))
    await collect(store)
    await store.aclose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
