"""Writes: ours, the slatedb wheel and rocksdict, in turns, on a store in memory or a scratch directory.

16-byte keys, 100-byte values.  Rates are what a caller sees; WAL and L0 flushes run beside.
"""

import asyncio
import gc
import json
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import shale
from shale.store.memory import MemoryStore
from tests.bench.line import BenchLine

ROUNDS = 5
PUTS = 100_000
PEER_PUTS = 2_000
BATCH = 1000
VALUE = b"v" * 100

Writes = Callable[[list[bytes]], Awaitable[float]]


def keys(count: int) -> list[bytes]:
    """Every key once, in an order that is not the keys'."""
    return [b"key%013d" % (number * 7919 % count) for number in range(count)]


async def each_us(put: Callable[[bytes], Awaitable[Any]], wanted: list[bytes]) -> float:
    """Microseconds per awaited put."""
    start = perf_counter()
    for key in wanted:
        await put(key)
    return (perf_counter() - start) / len(wanted) * 1e6


async def our_puts(wanted: list[bytes]) -> float:
    """``await db.put``, one by one."""
    async with shale.Db.open("db", store=MemoryStore()) as db:
        for key in wanted[:1000]:
            await db.put(key, VALUE)
        await db.flush("memtable")
        return await each_us(lambda key: db.put(key, VALUE), wanted)


async def our_batches(wanted: list[bytes]) -> float:
    """Batches of a thousand, per row."""
    async with shale.Db.open("db", store=MemoryStore()) as db:
        start = perf_counter()
        for first in range(0, len(wanted), BATCH):
            batch = shale.WriteBatch()
            for key in wanted[first : first + BATCH]:
                batch.put(key, VALUE)
            await db.write(batch)
        return (perf_counter() - start) / len(wanted) * 1e6


async def our_durable_puts(wanted: list[bytes]) -> float:
    """``await handle.durable()`` after each put, adaptive."""
    async with shale.Db.open("db", store=MemoryStore(), flush_interval=0) as db:

        async def durable(key: bytes) -> None:
            await (await db.put(key, VALUE)).durable()

        return await each_us(durable, wanted[:2000])


async def wheel(work: Callable[[Any, Any], Awaitable[float]]) -> float:
    """Something done with the released package on a store in memory."""
    from slatedb import uniffi as slate

    settings = slate.Settings.default()
    settings.set("compactor_options", json.dumps(None))
    builder = slate.DbBuilder("db", slate.ObjectStore.resolve("memory:///"))
    builder.with_settings(settings)
    db = await builder.build()
    try:
        return await work(db, slate)
    finally:
        await db.shutdown()


async def wheel_puts(wanted: list[bytes]) -> float:
    """The wheel's ``put`` without waiting for durability."""

    async def work(db: Any, _: Any) -> float:
        return await each_us(lambda key: db.put(key, VALUE), wanted[:PEER_PUTS])

    return await wheel(work)


async def wheel_batches(wanted: list[bytes]) -> float:
    """The wheel's batches of a thousand, per row."""

    async def work(db: Any, slate: Any) -> float:
        count = 10 * BATCH
        start = perf_counter()
        for first in range(0, count, BATCH):
            batch = slate.WriteBatch()
            for key in wanted[first : first + BATCH]:
                batch.put(key, VALUE)
            await db.write(batch)
        return (perf_counter() - start) / count * 1e6

    return await wheel(work)


def rocks_us(*, batches: bool) -> float:
    """RocksDB through rocksdict, per row."""
    import rocksdict

    folder = Path(tempfile.mkdtemp())
    db = rocksdict.Rdict(str(folder / "db"), rocksdict.Options(raw_mode=True))
    wanted = keys(PUTS)
    start = perf_counter()
    if batches:
        for first in range(0, PUTS, BATCH):
            batch = rocksdict.WriteBatch(raw_mode=True)
            for key in wanted[first : first + BATCH]:
                batch.put(key, VALUE)
            db.write(batch)
    else:
        for key in wanted:
            db[key] = VALUE
    spent = (perf_counter() - start) / PUTS * 1e6
    db.close()
    shutil.rmtree(folder)
    return spent


def in_turns(*contestants: Callable[[], float]) -> list[float]:
    """The median of each, one round of all after the other."""
    times: list[list[float]] = [[] for _ in contestants]
    for _ in range(ROUNDS):
        for contestant, seen in zip(contestants, times, strict=True):
            gc.collect()
            seen.append(contestant())
    return [median(seen) for seen in times]


def lines() -> list[BenchLine]:
    """Everything about writes."""
    wanted = keys(PUTS)

    def timed(work: Writes) -> Callable[[], float]:
        return lambda: asyncio.run(work(wanted))

    put, batch, peer_put, peer_batch, rocks_put, rocks_batch, durable = in_turns(
        timed(our_puts),
        timed(our_batches),
        timed(wheel_puts),
        timed(wheel_batches),
        lambda: rocks_us(batches=False),
        lambda: rocks_us(batches=True),
        timed(our_durable_puts),
    )
    table = (
        ("put, against the wheel", put, peer_put, ">= 50x, wanted 100x"),
        ("put, against RocksDB", put, rocks_put, ">= 1.3x"),
        ("row in a batch of 1000, against the wheel", batch, peer_batch, ">= 100x"),
        ("row in a batch of 1000, against RocksDB", batch, rocks_batch, ">= 2x"),
        ("durable put, one client, store in memory", durable, None, "1.3x one raw put"),
    )
    return [
        BenchLine(name=name, ours=ours, reference=reference, unit="us", target=target)
        for name, ours, reference, target in table
    ]


if __name__ == "__main__":
    for line in lines():
        print(line)
