"""L0s with disjoint keys are read one after the other."""

from random import Random
from typing import Any

import anyio
import pytest

from shale.engine.db import Db
from shale.engine.options import FlushType
from shale.store.memory import MemoryStore
from tests.unit.engine.reading import RangeRecordingStore

MIB = 1 << 20
MANY_L0S: dict[str, Any] = {"l0_max_ssts": 100, "l0_max_ssts_per_key": 100}


@pytest.mark.parametrize("options", [{}, {"reverse": True}, {"limit": 3}])
def test_a_scan_reads_no_l0_long_before_its_rows(options: dict[str, Any]) -> None:
    async def main() -> None:
        store = RangeRecordingStore()
        async with Db.open("db", store=store, **MANY_L0S) as db:
            for number in Random(1).sample(range(12), 12):
                await db.put(b"k%02d" % number, Random(number).randbytes(MIB))
                await db.flush(FlushType.MEMTABLE)
        async with Db.open("db", store=store, block_cache_bytes=0, **MANY_L0S) as db:
            store.reads.clear()
            scan = db.scan(read_ahead_bytes=MIB, **options)
            async for row in scan:
                assert row.key == (b"k11" if "reverse" in options else b"k00")
                break
            read = sum(end - start for _, start, end in store.reads if end - start >= MIB)
            assert read <= 3 * (MIB + 1000), "the first, and what is read ahead"

    anyio.run(main)


@pytest.mark.parametrize("seed", range(6))
def test_rows_of_l0s_are_the_newest(seed: int) -> None:
    """L0s that overlap, touch, or are disjoint."""

    async def main() -> None:
        random, expected = Random(seed), dict[bytes, bytes]()
        async with Db.open("db", store=MemoryStore(), **MANY_L0S) as db:
            for number in range(20):
                first = random.randrange(60)
                for place in range(first, first + random.randrange(1, 8)):
                    key = b"k%02d" % place
                    if random.random() < 0.2:
                        expected.pop(key, None)
                        await db.delete(key)
                    else:
                        expected[key] = b"%d" % number
                        await db.put(key, expected[key])
                await db.flush(FlushType.MEMTABLE)
            rows = sorted(expected.items())
            assert [(row.key, row.value) async for row in db.scan()] == rows
            assert [(row.key, row.value) async for row in db.scan(reverse=True)] == rows[::-1]
            assert [(row.key, row.value) async for row in db.scan(start=b"k10", stop=b"k40", limit=9)] == [
                row for row in rows if b"k10" <= row[0] < b"k40"
            ][:9]

    anyio.run(main)
