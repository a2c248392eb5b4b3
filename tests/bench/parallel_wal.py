"""Durable rows per second of one writer on a store that takes 50 ms for a put, by the number of puts in flight.

With small WAL files one flush cannot take all waiting rows, so the rate is that of the puts; one task writes ahead and
waits for the oldest row.  Without a limit a file takes all rows that wait; many clients wait for a row each.
"""

import asyncio
from collections import deque
from statistics import median
from time import perf_counter
from typing import Any

import anyio

import shale
from shale.store.memory import MemoryStore
from tests.bench.line import BenchLine
from tests.bench.peers import key_of

PUT_S = 0.05
SECONDS = 4.0
CLIENTS = 100
AHEAD = 200
WARM_S = 0.5
FILE_BYTES = 4096
VALUE = b"v" * 900
PARALLEL = (1, 2, 4, 8)


class SlowWalStore(MemoryStore):
    """A store that takes 50 ms for every put of a WAL file."""

    async def put(self, key: str, *args: Any, **keywords: Any) -> Any:
        """See ``ObjectStore``."""
        if "/wal/" in key:
            await anyio.sleep(PUT_S)
        return await super().put(key, *args, **keywords)


def open_slow(parallel: int, **settings: Any) -> Any:
    """Open a new database with so many puts in flight."""
    return shale.Db.open("db", store=SlowWalStore(), flush_interval=0, max_parallel_writes=parallel, **settings)


async def rate_of_small_files(parallel: int) -> float:
    """Return durable rows per second of one task that is some rows ahead of the oldest row it waits for."""
    async with open_slow(parallel, wal_flush_bytes=FILE_BYTES) as db:
        waiting: deque[Any] = deque()
        number = begun = 0
        begin_s = perf_counter() + WARM_S
        while (now_s := perf_counter()) < begin_s + SECONDS:
            if now_s < begin_s:
                begun = db.status.durable_seq
            while len(waiting) < AHEAD:
                waiting.append(await db.put(key_of(number), VALUE))
                number += 1
            await waiting[0].durable()
            while waiting and waiting[0].seq <= db.status.durable_seq:
                waiting.popleft()
        rate = (db.status.durable_seq - begun) / (perf_counter() - begin_s)
        await db.flush("wal")
    return rate


async def time_of_row(parallel: int) -> tuple[float, float]:
    """Return the milliseconds of a durable row at the median, and rows per second of all clients together."""
    times: list[float] = []
    async with open_slow(parallel) as db:
        begin_s = perf_counter() + WARM_S

        async def client(number: int) -> None:
            turn = 0
            while (asked_s := perf_counter()) < begin_s + SECONDS:
                handle = await db.put(key_of(number * 100_000 + turn), VALUE)
                await handle.durable()
                turn += 1
                if begin_s <= perf_counter() < begin_s + SECONDS:
                    times.append(perf_counter() - asked_s)

        await asyncio.gather(*map(client, range(CLIENTS)))
    return median(times) * 1e3, len(times) / SECONDS


def parallel_wal_lines() -> list[BenchLine]:
    """Rates by the number of puts in flight."""
    lines = []
    alone = 0.0
    for parallel in PARALLEL:
        rate = asyncio.run(rate_of_small_files(parallel))
        alone = alone or rate
        lines.append(
            BenchLine(
                name=f"durable rows, 4 KiB files, {parallel} at once | one at a time",
                ours=rate,
                reference=alone,
                unit="rows/s",
                target=f">= {0.9 * parallel:g}x",
            )
        )
    for parallel in PARALLEL:
        p50_ms, rate = asyncio.run(time_of_row(parallel))
        lines.append(BenchLine(name=f"durable row, {parallel} at once", ours=p50_ms, unit="ms", target="reported"))
        lines.append(BenchLine(name=f"durable rows, {parallel} at once", ours=rate, unit="rows/s", target="reported"))
    return lines
