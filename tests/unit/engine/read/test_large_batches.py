"""Reads of many large values: a batch reads no more blocks at once than fit into some mebibytes."""

import tracemalloc
from pathlib import Path
from random import Random
from typing import Any

import anyio
import anyio.lowlevel
import pyarrow as pa
import pytest

from shale.engine.db import Db
from shale.engine.options import FlushType
from shale.engine.read.pending_groups import GROUP_BYTES_MAX
from shale.errors import ResponseTooLarge
from shale.sst.budget import COPIES_OF_VALUE, MemoryBudget
from shale.sst.reads import data_blocks, local_blocks
from shale.store.memory import MemoryStore

MIB = 1 << 20
KEYS = [b"k%03d" % number for number in range(40)]


class InFlightStore(MemoryStore):
    """Counts the bytes of reads, and the most that were in flight at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.read_bytes = self.in_flight = self.most = self.rounds = 0

    async def get_range(self, key: str, start: int, end: int) -> memoryview | None:
        self.rounds += not self.in_flight
        self.in_flight += end - start
        self.most = max(self.most, self.in_flight)
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        self.in_flight -= end - start
        self.read_bytes += end - start
        return await super().get_range(key, start, end)

    def reset(self) -> None:
        self.read_bytes = self.most = self.rounds = 0


async def fill(store: Any, values: list[bytes], **options: Any) -> None:
    async with Db.open("db", store=store, l0_max_ssts_per_key=100, l0_max_ssts=100, **options) as db:
        for key, value in zip(KEYS, values, strict=True):
            await db.put(key, value)
        await db.flush(FlushType.MEMTABLE)


def random_values(size: int) -> list[bytes]:
    return [Random(number).randbytes(size) for number in range(len(KEYS))]


@pytest.mark.parametrize("cache", [0, 64 * MIB])
def test_values_beyond_the_limit_are_not_read(cache: int) -> None:
    async def main() -> None:
        store, values = InFlightStore(), random_values(MIB)
        await fill(store, values)
        async with Db.open("db", store=store, block_cache_bytes=cache) as db:
            store.reset()
            with pytest.raises(ResponseTooLarge):
                await db.get_many(KEYS, max_bytes=MIB)
            assert store.read_bytes <= GROUP_BYTES_MAX + MIB
            store.reset()
            assert await db.get_many(KEYS, max_bytes=len(KEYS) * MIB) == values
            assert store.most <= GROUP_BYTES_MAX + MIB

    anyio.run(main)


@pytest.mark.parametrize("hide_expired", [False, True])
def test_no_more_values_than_allowed_are_copied_from_the_cache(hide_expired: bool) -> None:
    """The rest is in the store: a task that waits for memory to read it keeps what it has."""

    async def main() -> None:
        store, values = MemoryStore(), random_values(MIB // 2)
        await fill(store, values)
        async with Db.open("db", store=store, block_cache_bytes=64 * MIB) as db:
            for key in KEYS[1:30]:
                await db.get(key)
            tracemalloc.start()
            try:
                with pytest.raises(ResponseTooLarge):
                    await db.get_many(KEYS, max_bytes=MIB, hide_expired=hide_expired)
                most = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            # The kernel copies all that it finds at once, without waiting.
            assert most < (3 * MIB if hide_expired else 16 * MIB)

    anyio.run(main)


@pytest.mark.parametrize("max_bytes", [32 << 10, 4 * MIB])
def test_no_more_values_than_allowed_are_copied_from_a_memtable(max_bytes: int) -> None:
    """The rest would be held while keys that it does not have are read, by many such reads at the same time."""

    async def main() -> None:
        store, values = MemoryStore(), random_values(MIB)
        await fill(store, values)
        async with Db.open("db", store=store, block_cache_bytes=64 * MIB) as db:
            columns = [pa.array(KEYS[:10], pa.binary()), pa.array(values[:10], pa.binary())]
            # The memtable has the rows as columns, as a frozen one has all: each value that is read is a copy.
            await db.write_arrow(pa.record_batch(columns, names=["key", "value"]))
            tracemalloc.start()
            try:
                with pytest.raises(ResponseTooLarge):
                    await db.get_many(KEYS, max_bytes=max_bytes)
                most = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            assert most < max_bytes + 2 * MIB

    anyio.run(main)


def test_reads_of_medium_values_are_admitted_together() -> None:
    """Each is small enough to be read without memory of its own, but not all of many tasks."""
    admitted: list[int] = []

    class Values:
        held_bytes, is_contended = 0, False

        async def take(self, size_bytes: int) -> None:
            admitted.append(size_bytes)

        def release(self) -> None:
            pass

    async def main() -> None:
        store, values = MemoryStore(), random_values(400 << 10)
        await fill(store, values)
        budget = MemoryBudget(64 * MIB, large_values=Values())
        async with Db.open("db", store=store, cache=budget) as db:
            assert await db.get_many(KEYS[::5]) == values[::5]
        assert len(admitted) == 1
        assert admitted[0] >= COPIES_OF_VALUE * len(KEYS[::5]) * (400 << 10)

    anyio.run(main)


def test_small_values_are_read_in_two_rounds() -> None:
    async def main() -> None:
        store, values = InFlightStore(), random_values(1000)
        await fill(store, values)
        async with Db.open("db", store=store) as db:
            store.reset()
            assert await db.get_many(KEYS) == values
            assert store.rounds <= 2

    anyio.run(main)


@pytest.mark.slow
def test_many_compressed_rows_are_read_in_two_rounds() -> None:
    """Their blocks are not taken to be larger than they are."""
    keys = [b"%05d" % number for number in range(2_000)]
    rows = {key: Random(key).randbytes(200).hex().encode() for key in keys}

    async def main() -> None:
        store = InFlightStore()
        async with Db.open("db", store=store, compression="zlib") as db:
            for key, value in rows.items():
                await db.put(key, value)
            await db.flush(FlushType.MEMTABLE)
        async with Db.open("db", store=store) as db:
            store.reset()
            assert await db.get_many(keys) == [*rows.values()]
            assert store.rounds <= 2

    anyio.run(main)


def test_values_that_expand_are_counted_before_all_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked: list[int] = []

    def counted(opened: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            image = opened(*args, **options)
            unpacked.append(len(image))
            return image

        return call

    async def main() -> None:
        values = [number.to_bytes(1, "big") + bytes(MIB) for number in range(len(KEYS))]
        name = f"file://{tmp_path}/db"
        async with Db.open(name, compression="zlib") as db:
            for key, value in zip(KEYS, values, strict=True):
                await db.put(key, value)
            await db.flush(FlushType.MEMTABLE)
        for module in (local_blocks, data_blocks):
            monkeypatch.setattr(module, "open_section", counted(module.open_section))
        async with Db.open(name, block_cache_bytes=64 * MIB) as db:
            with pytest.raises(ResponseTooLarge):
                await db.get_many(KEYS, max_bytes=MIB)
            assert sum(unpacked) <= GROUP_BYTES_MAX
            assert await db.get_many(KEYS) == values

    anyio.run(main)
