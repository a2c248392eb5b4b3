"""Warm reads make no request, evicted ones do; both apply to the given keys, targets and SST only."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest

import shale
from shale.engine.db_cache import adopt_cache
from shale.engine.warm import CacheTarget, WarmResult
from shale.env import Env, InlineCpu, SystemClock
from shale.errors import InvalidRequestError, SstMissing
from tests.unit.engine.reading import RangeRecordingStore


class World:
    """A database with two L0s: a000..a199 and b000..b199, and a reader beside its writer."""

    def __init__(self) -> None:
        self.store = RangeRecordingStore()
        self.env = Env(SystemClock(), Random(1), InlineCpu())

    async def fill(self) -> None:
        async with self.db() as db:
            for letter in (b"a", b"b"):
                for number in range(200):
                    await db.put(letter + b"%03d" % number, b"v" * 100)
                await db.flush("memtable")

    def db(self, **settings: Any) -> Any:
        return shale.Db.open("db", store=self.store, env=self.env, block_size_bytes=1024, min_filter_keys=1, **settings)

    def reader(self, **settings: Any) -> Any:
        return shale.DbReader.open("db", store=self.store, env=self.env, follow_latest=True, **settings)


def run(test: Callable[[World], Awaitable[None]]) -> None:
    async def body() -> None:
        world = World()
        await world.fill()
        world.store.reads.clear()
        await test(world)

    anyio.run(body)


def test_everything_is_warm() -> None:
    async def test(world: World) -> None:
        async with world.reader() as reader:
            warmed = await reader.cache.warm()
            assert warmed.ssts == 2
            assert warmed.blocks > 40
            assert warmed.size_bytes > 400 * 100
            world.store.reads.clear()
            assert len([row async for row in reader.scan()]) == 400
            assert await reader.get(b"a100") == b"v" * 100
            assert await reader.cache.warm() == warmed
            assert world.store.reads == []

    run(test)


def test_only_these_keys_and_targets() -> None:
    async def test(world: World) -> None:
        async with world.reader() as reader:
            assert await reader.cache.warm(targets=()) == WarmResult()
            assert world.store.reads == []
            meta = await reader.cache.warm(targets=("index", CacheTarget.FILTERS))
            assert (meta.ssts, meta.blocks) == (2, 0)
            assert len(world.store.reads) == 2
            part = await reader.cache.warm(start=b"a100", stop=b"a120")
            assert part.ssts == 1
            assert 2 <= part.blocks <= 5
            assert len(world.store.reads) == 3
            assert await reader.get(b"a110")
            assert len(world.store.reads) == 3
            assert (await reader.cache.warm(prefix=b"c")).ssts == 0
            with pytest.raises(InvalidRequestError, match="choose from filters"):
                await reader.cache.warm(targets=("everything",))

    run(test)


def test_the_writer_can_be_warmed_too() -> None:
    async def test(world: World) -> None:
        async with world.db() as db:
            assert (await db.cache.warm()).ssts == 2
            world.store.reads.clear()
            assert len(await db.get_many([b"a%03d" % number for number in range(200)])) == 200
            assert world.store.reads == []

    run(test)


def test_evicted_keys_are_read_again() -> None:
    async def test(world: World) -> None:
        async with world.reader(block_cache_bytes="1MiB") as reader:
            await reader.cache.warm()
            await reader.cache.evict(start=b"a100", stop=b"a120")
            world.store.reads.clear()
            await reader.get(b"a010")
            await reader.get(b"b010")
            assert world.store.reads == []
            await reader.get(b"a110")
            assert len(world.store.reads) == 1
            await reader.cache.evict()
            world.store.reads.clear()
            await reader.get(b"a010")
            assert len(world.store.reads) == 2, "index and block"

    run(test)


def test_one_sst() -> None:
    async def test(world: World) -> None:
        async with world.reader() as reader:
            newest, oldest = (str(view.sst.id) for view in reader.manifest.tree.l0)
            assert (await reader.cache.warm_sst(newest, targets=["data"], start=b"b150")).blocks < 20
            assert (await reader.cache.warm_sst(oldest)).ssts == 1
            assert await reader.cache.warm_sst("01ARZ3NDEKTSV4RRFFQ69G5FAV") == WarmResult()
            world.store.reads.clear()
            await reader.cache.evict_sst(oldest)
            await reader.cache.evict_sst("01ARZ3NDEKTSV4RRFFQ69G5FAV")
            await reader.get(b"b190")
            assert world.store.reads == []
            await reader.get(b"a190")
            assert len(world.store.reads) == 2

    run(test)


def test_on_disk_it_stays_unless_that_is_asked_for(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        async with world.reader(disk_cache=tmp_path) as reader:
            await reader.cache.warm()
            await reader.cache.evict()
            world.store.reads.clear()
            await reader.get(b"a010")
            assert world.store.reads == []
            await reader.cache.evict(disk=True)
            await reader.get(b"a010")
            assert world.store.reads

    run(test)


def test_an_sst_that_is_lost() -> None:
    async def test(world: World) -> None:
        async with world.reader() as reader:
            for meta in await world.store.list("db/compacted/"):
                await world.store.delete(meta.key)
            with pytest.raises(SstMissing):
                await reader.cache.warm()

    run(test)


def test_a_handle_adopts_what_another_one_has_in_memory() -> None:
    async def test(world: World) -> None:
        async with world.reader(block_cache_bytes="1MiB") as reader, world.db(block_cache_bytes="1MiB") as db:
            await reader.cache.warm()
            assert await adopt_cache(db.cache, reader.cache) == 2
            await reader.close()
            world.store.reads.clear()
            assert await db.get(b"a007") == b"v" * 100
            assert world.store.reads == []

    run(test)
