"""The requests of reads: round trips of a cold get, and requests of a scan."""

import asyncio
from time import perf_counter

import shale
from shale.engine.db_reader import DbReader
from shale.env import Env
from shale.store.memory import MemoryStore
from tests.bench.line import BenchLine
from tests.bench.peers import L0_COUNT, key_of

ROUND_TRIP_S = 0.05
SCAN_ROWS, VALUE_BYTES = 60_000, 500
READ_AHEAD_BYTES = 4 << 20


class SlowReadStore(MemoryStore):
    """Range reads take a while once ``is_slow`` is set; they are counted."""

    is_slow = False
    reads = 0
    read_bytes = 0

    async def get_range(self, key: str, start: int, end: int) -> memoryview | None:
        self.reads += 1
        self.read_bytes += end - start
        if self.is_slow:
            await asyncio.sleep(ROUND_TRIP_S)
        return await super().get_range(key, start, end)


async def cold_get() -> float:
    """Round trips of a first get over four L0s that all may hold the key."""
    store = SlowReadStore(Env.system().clock)
    async with shale.Db.open("db", store=store, min_filter_keys=1 << 30) as db:
        for part in range(L0_COUNT):
            async with db.batch() as batch:
                for number in range(part, 4_000, L0_COUNT):
                    batch.put(key_of(number), bytes(100))
            await db.flush("memtable")
    async with DbReader.open("db", store=store) as reader:
        store.is_slow = True
        start = perf_counter()
        await reader.get(key_of(2_000))
        return (perf_counter() - start) / ROUND_TRIP_S


async def scan_requests(*, reverse: bool) -> float:
    """GETs for each 4 MiB of a full scan over one large SST, its metadata among them."""
    store = SlowReadStore(Env.system().clock)
    async with shale.Db.open("db", store=store, l0_sst_size_bytes="1GiB", max_unflushed_bytes="2GiB") as db:
        for first in range(0, SCAN_ROWS, 5_000):
            async with db.batch() as batch:
                for number in range(first, first + 5_000):
                    batch.put(key_of(number), bytes(VALUE_BYTES))
        await db.flush("memtable")
        store.reads = store.read_bytes = 0
        scan = db.scan(reverse=reverse)
        while await scan.columns() is not None:
            pass
    return store.reads / (store.read_bytes / READ_AHEAD_BYTES)


def request_lines() -> list[BenchLine]:
    """One line each."""
    forward, backward = (asyncio.run(scan_requests(reverse=reverse)) for reverse in (False, True))
    return [
        BenchLine(name="cold get over 4 L0s", ours=asyncio.run(cold_get()), unit="trips", target="<= 2, and some CPU"),
        BenchLine(name="scan, per 4 MiB", ours=forward, unit="GETs", target="<= 1, and one for metadata"),
        BenchLine(name="scan backward, per 4 MiB", ours=backward, unit="GETs", target="<= 1, and one for metadata"),
    ]
