"""SSTs that enter the disk cache when they are written, and when a database is opened."""

from collections.abc import AsyncIterable, AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest

import shale
from shale.core.bytes_like import BytesLike
from shale.env import Env, InlineCpu, SystemClock
from shale.errors import InvalidRequestError, UnavailableError
from shale.kernels.rows import rows_from_entries
from shale.sst.builder import build_sst
from shale.sst.disk_cache import CachingUploads, DiskCache
from shale.sst.disk_cache_options import DiskCacheOptions
from shale.sst.options import SstOptions
from shale.store.memory import MemoryStore
from shale.types import Entry

STEP = 1 << 14


class WatchedStore(MemoryStore):
    """Counts range reads of SSTs, and fails streams if it should."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.fails = False

    async def get_range(self, key: str, start: int, end: int) -> memoryview | None:
        self.reads += "/compacted/" in key
        return await super().get_range(key, start, end)

    async def put_stream(self, key: str, parts: AsyncIterable[BytesLike]) -> None:
        if self.fails:
            async for _ in parts:
                pass
            raise UnavailableError("away")
        await super().put_stream(key, parts)


class World:
    """A store and a directory; databases without blocks in memory."""

    def __init__(self, folder: Path) -> None:
        self.store = WatchedStore()
        self.folder = folder
        rng = Random(1)
        self.rows = {b"%05d" % number: rng.randbytes(100) for number in range(2000)}

    def open(self, **disk: Any) -> Any:
        cache = {"directory": str(self.folder), "part_bytes": STEP, **disk}
        return shale.Db.open("db", store=self.store, disk_cache=cache, block_cache_bytes=0, flush_interval=0)

    async def fill(self, db: shale.Db) -> None:
        for key, value in self.rows.items():
            await db.put(key, value)
        await db.flush("memtable")

    async def check(self, db: shale.Db | shale.DbReader) -> int:
        """Compare all rows; return how many reads of SSTs that took."""
        before = self.store.reads
        for key in list(self.rows)[::97]:
            assert await db.get(key) == self.rows[key]
        assert {row.key: row.value async for row in db.scan()} == self.rows
        return self.store.reads - before


def test_a_flushed_sst_needs_no_read(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def run() -> None:
        async with world.open(cache_on_flush=True) as db:
            await world.fill(db)
            assert await world.check(db) == 0
        async with world.open() as db:
            assert await world.check(db) == 0

    anyio.run(run)


def test_without_the_option_the_first_reads_fetch(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def run() -> None:
        async with world.open() as db:
            await world.fill(db)
            assert await world.check(db) > 0

    anyio.run(run)


def test_an_upload_that_failed_leaves_no_copy(tmp_path: Path) -> None:
    """What does not end like an SST leaves no copy either."""
    rows = rows_from_entries([Entry(b"%05d" % number, Random(number).randbytes(200), 1, 0) for number in range(4000)])
    data, info = build_sst(rows, SstOptions())
    whole = b"".join(map(bytes, data)) if isinstance(data, list) else bytes(data)

    async def parts(content: bytes) -> AsyncIterator[bytes]:
        for start in range(0, len(content), 5000):
            yield content[start : start + 5000]

    async def run() -> None:
        store = WatchedStore()
        cache = DiskCache(DiskCacheOptions(str(tmp_path), part_bytes=STEP), SystemClock())
        uploads = CachingUploads(store, store.url, cache, Env(SystemClock(), Random(1), InlineCpu()))
        store.fails = True
        with pytest.raises(UnavailableError):
            await uploads.put_stream("db/compacted/x.sst", parts(whole))
        assert (cache.keys, cache.size_bytes) == (0, 0)
        store.fails = False
        await uploads.put_stream("db/compacted/x.sst", parts(whole[:-1]))
        assert cache.keys == 0
        await uploads.put_stream("db/compacted/x.sst", parts(whole))
        assert cache.keys == -(-info.sections_end // STEP)

    anyio.run(run)


@pytest.mark.slow
@pytest.mark.parametrize("preload", ["l0", "all"])
def test_a_preload_brings_everything_before_the_open_returns(preload: str, tmp_path: Path) -> None:
    world = World(tmp_path)

    async def run() -> None:
        async with world.open() as db:
            await world.fill(db)
        assert world.store.reads == 0
        async with world.open(preload=preload) as db:
            loaded = world.store.reads
            assert loaded > 0
            assert await world.check(db) == 0
        async with world.open(preload=preload) as db:
            assert world.store.reads == loaded, "what is on disk is not loaded again"
            assert await world.check(db) == 0

    anyio.run(run)


def test_a_reader_preloads_too(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def run() -> None:
        async with world.open() as db:
            await world.fill(db)
        cache = {"directory": str(tmp_path), "part_bytes": STEP, "preload": "all"}
        async with shale.DbReader.open(
            "db", store=world.store, disk_cache=cache, block_cache_bytes=0, follow_latest=True
        ) as reader:
            assert world.store.reads > 0
            assert await world.check(reader) == 0

    anyio.run(run)


def test_a_preload_takes_what_fits(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def run() -> None:
        async with world.open() as db:
            await world.fill(db)
        async with world.open(preload="all", max_bytes=2 * STEP):
            assert world.store.reads == 0

    anyio.run(run)


def test_few_open_files_are_enough(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def run() -> None:
        async with world.open(cache_on_flush=True, max_open_files=1) as db:
            await world.fill(db)
            assert await world.check(db) == 0

    anyio.run(run)


@pytest.mark.parametrize("wrong", [{"preload": "l1"}, {"max_open_files": 0}, {"cache_on_merge": True}])
def test_impossible_options(wrong: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError):
        shale.Db.open("db", store=MemoryStore(), disk_cache={"directory": str(tmp_path), **wrong})
