"""The settings of SlateDB's object store cache do the same in both packages, as far as files on disk tell."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from slatedb import uniffi as wheel

from shale.compat.slatedb import uniffi as ours
from tests.interop.compat.programs import BUSY, SETTINGS, file_store

BOTH = pytest.mark.parametrize("api", [wheel, ours], ids=["wheel", "ours"])


def cached_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


class World:
    def __init__(self, api: Any, folder: Path) -> None:
        self.api = api
        self.cache = folder / "cache"
        database = folder / "database"
        database.mkdir()
        self.store = file_store(api, database)

    async def open(self, options: dict[str, Any], **values: Any) -> Any:
        builder = self.api.DbBuilder("db", self.store)
        settings = self.api.Settings.default()
        for name, value in {**SETTINGS, **values}.items():
            settings.set(name, json.dumps(value))
        for name, value in {"root_folder": str(self.cache), "part_size_bytes": 4096, **options}.items():
            settings.set(f"object_store_cache_options.{name}", json.dumps(value))
        builder.with_settings(settings)
        return await builder.build()

    async def fill(self, db: Any, flushes: int = 1) -> None:
        options = self.api.FlushOptions(flush_type=self.api.FlushType.MEM_TABLE)
        for number in range(flushes):
            await db.put(b"k%d" % number, bytes(20_000))
            async with asyncio.timeout(30):
                await db.flush_with_options(options)


@BOTH
@pytest.mark.parametrize("cached", [False, True])
def test_cache_on_flush(api: Any, cached: bool, tmp_path: Path) -> None:
    async def run() -> None:
        world = World(api, tmp_path)
        db = await world.open({"cache_on_flush": cached})
        await world.fill(db)
        assert (cached_bytes(world.cache) >= 20_000) is cached
        assert await db.get(b"k0") == bytes(20_000)
        await db.shutdown()

    asyncio.run(run())


@BOTH
@pytest.mark.parametrize("cached", [False, True])
def test_cache_on_compaction(api: Any, cached: bool, tmp_path: Path) -> None:
    """Twelve flushes with room for six: the last one waits until a compaction has written its output."""

    async def run() -> None:
        world = World(api, tmp_path)
        db = await world.open({"cache_on_compaction": cached}, **BUSY)
        await world.fill(db, flushes=12)
        assert (cached_bytes(world.cache) >= 20_000) is cached
        assert [await db.get(b"k%d" % number) for number in range(12)] == [bytes(20_000)] * 12
        await db.shutdown()

    asyncio.run(run())


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("level", [None, "L0Sst", "AllSst"])
def test_preload_at_start(api: Any, level: str | None, tmp_path: Path) -> None:
    async def run() -> None:
        world = World(api, tmp_path)
        db = await world.open({})
        await world.fill(db, flushes=2)
        await db.shutdown()
        assert cached_bytes(world.cache) == 0
        db = await world.open({"preload_disk_cache_on_startup": level})
        assert (cached_bytes(world.cache) >= 40_000) is (level is not None)
        assert await db.get(b"k1") == bytes(20_000)
        await db.shutdown()

    asyncio.run(run())


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("handles", [1, 1000])
def test_any_number_of_open_files_reads_the_same(api: Any, handles: int, tmp_path: Path) -> None:
    async def run() -> None:
        world = World(api, tmp_path)
        db = await world.open({"cache_on_flush": True, "max_open_file_handles": handles})
        await world.fill(db, flushes=5)
        for _ in range(2):
            assert [await db.get(b"k%d" % number) for number in range(5)] == [bytes(20_000)] * 5
        await db.shutdown()

    asyncio.run(run())
