"""What blocking costs: the calls of ``shale.sync`` beside the asynchronous ones, in one run on one database."""

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter

import shale
from shale import sync
from tests.bench.line import BenchLine
from tests.bench.peers import key_of

ROUNDS = 5
ROWS = 100_000
CALLS = 3_000
KEYS = [key_of(number) for number in range(ROWS)]

Times = dict[str, list[float]]


def fill(url: str) -> None:
    with sync.Db.open(url) as db:
        for start in range(0, ROWS, 1_000):
            with db.batch() as batch:
                for key in KEYS[start : start + 1_000]:
                    batch.put(key, bytes(100))


async def asynchronous(url: str) -> Times:
    times: Times = {name: [] for name in TARGETS}
    async with shale.Db.open(url) as db:
        for _ in range(ROUNDS):
            start = perf_counter()
            for key in KEYS[:CALLS]:
                await db.put(key, b"v")
            times["put"].append((perf_counter() - start) / CALLS)
            start = perf_counter()
            for key in KEYS[:CALLS]:
                await db.get(key)
            times["get"].append((perf_counter() - start) / CALLS)
            start = perf_counter()
            rows = [row async for row in db.scan()]
            times["scan, per row"].append((perf_counter() - start) / len(rows))
            start = perf_counter()
            await db.get_many(KEYS[:CALLS])
            times["get many, per key"].append((perf_counter() - start) / CALLS)
    return times


def blocking(url: str) -> Times:
    times: Times = {name: [] for name in TARGETS}

    def timed(name: str, count: int, work: Callable[[], object]) -> None:
        start = perf_counter()
        work()
        times[name].append((perf_counter() - start) / count)

    with sync.Db.open(url) as db:
        for _ in range(ROUNDS):
            timed("put", CALLS, lambda: [db.put(key, b"v") for key in KEYS[:CALLS]])
            timed("get", CALLS, lambda: [db.get(key) for key in KEYS[:CALLS]])
            timed("scan, per row", ROWS, lambda: list(db.scan()))
            timed("get many, per key", CALLS, lambda: db.get_many(KEYS[:CALLS]))
    return times


TARGETS = {
    "put": "a trip to another thread and back, 50 to 150 us",
    "get": "a trip to another thread and back, 50 to 150 us",
    "scan, per row": "near the asynchronous one: ratio >= 0.7",
    "get many, per key": "near the asynchronous one: ratio >= 0.7",
}


def sync_lines() -> list[BenchLine]:
    """One line for each call; the reference is the asynchronous one."""
    with tempfile.TemporaryDirectory() as directory:
        url = Path(directory).as_uri() + "/db"
        fill(url)
        reference, ours = asyncio.run(asynchronous(url)), blocking(url)
    return [
        BenchLine(
            name=f"blocking {name}",
            ours=median(ours[name]) * 1e6,
            reference=median(reference[name]) * 1e6,
            unit="us",
            target=target,
        )
        for name, target in TARGETS.items()
    ]
