"""Durable puts with adaptive flushing: one client against a raw conditional put, and a hundred clients at once."""

import asyncio
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

import shale
from shale.store.connect import open_store
from shale.store.port import CREATE
from tests.bench.line import BenchLine

PUTS = 300
CLIENTS = 100
VALUE = b"v" * 100


async def raw_puts(directory: Path) -> list[float]:
    """What the store takes for an object of the same size, created if absent."""
    store = open_store(f"file://{directory}")
    times = []
    for number in range(PUTS):
        start = perf_counter()
        await store.put(f"raw/{number}", VALUE, mode=CREATE)
        times.append(perf_counter() - start)
    await store.aclose()
    return times


async def durable_puts(db: shale.Db, client: int, count: int) -> list[float]:
    """Each put waits until it is in the store before the next."""
    times = []
    for number in range(count):
        start = perf_counter()
        handle = await db.put(b"%04d/%08d" % (client, number), VALUE)
        await handle.durable()
        times.append(perf_counter() - start)
    return times


async def measure() -> tuple[float, float, float]:
    """Seconds: raw put, durable put of one client, and of one among a hundred."""
    with tempfile.TemporaryDirectory() as directory:
        async with shale.Db.open(f"file://{directory}/db", flush_interval=0) as db:
            await durable_puts(db, 0, 50)
            raw = await raw_puts(Path(directory))
            alone = await durable_puts(db, 1, PUTS)
            together = await asyncio.gather(*(durable_puts(db, client, 20) for client in range(2, CLIENTS + 2)))
    return median(raw), median(alone), median(time for times in together for time in times)


def durable_lines() -> list[BenchLine]:
    """Milliseconds at the median."""
    raw, alone, together = (seconds * 1e3 for seconds in asyncio.run(measure()))
    target = "<= 1.3x one raw conditional put"
    return [
        BenchLine(name="durable put, one client | raw put", ours=alone, reference=raw, unit="ms", target=target),
        BenchLine(
            name="durable put, 100 clients | one", ours=together, reference=alone, unit="ms", target="shared PUTs"
        ),
    ]
