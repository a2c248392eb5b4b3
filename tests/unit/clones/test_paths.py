"""SSTs of ancestors are found at their paths: by handles, the disk cache, ``warm`` and ``evict``."""

import itertools
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import anyio

import shale
from shale.env import Env, InlineCpu, SystemClock
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.rebase import prune_external_ssts
from shale.protocol.versioned import Versioned
from shale.sst.budget import MemoryBudget
from shale.sst.disk_cache_options import DiskCacheOptions
from shale.store.connect import open_store
from shale.types import EVERYTHING, Manifest
from tests.clocks import FixedClock
from tests.unit.clones.lineage import CUT, PATHS, Lineage, Rows, manifest_of, written

_numbers = itertools.count()


def with_lineage(scenario: Callable[[Lineage, Path], Awaitable[None]]) -> Callable[[Path], None]:
    def test(tmp_path: Path) -> None:
        async def main() -> None:
            await scenario(await written(f"memory://lineage{next(_numbers)}/"), tmp_path)

        anyio.run(main)

    test.__name__, test.__doc__ = scenario.__name__, scenario.__doc__
    return test


async def scanned(db: Any, **options: Any) -> Rows:
    return {row.key: row.value async for row in db.scan(**options)}


@with_lineage
async def test_readers_and_writers(lineage: Lineage, folder: Path) -> None:
    for path, opens in itertools.product(PATHS, (shale.DbReader.open, shale.Db.open)):
        async with opens(lineage.place(path), enforce_visible_range=EVERYTHING) as db:
            assert await scanned(db) == lineage.rows[path]
            assert {key: await db.get(key) for key in lineage.rows["g"]} == {
                key: lineage.rows[path].get(key) for key in lineage.rows["g"]
            }


@with_lineage
async def test_one_disk_cache_for_all_of_them(lineage: Lineage, folder: Path) -> None:
    """Databases share cached parts of one object; an object with the same id in another database is a different one."""
    kept: set[Path] = set()
    for path in (*PATHS, *PATHS):
        async with shale.DbReader.open(
            lineage.place(path), disk_cache=disk_cache(folder), block_cache_bytes=0, env=inline()
        ) as db:
            assert await scanned(db) == lineage.rows[path]
        kept = parts_in(folder)
        assert len(kept) > 2
    ssts = {path: (await manifest_of(open_store(lineage.url), path)).ssts() for path in PATHS}
    each_once = ssts["g"] | ssts["p"] | ssts["c"]
    assert len(each_once) == 6
    assert len(kept) == sum(-(-sst.info.sections_end // (1 << 10)) for sst in each_once.values())


def test_equal_ids_in_other_databases_and_stores(tmp_path: Path) -> None:
    """Memory and disk caches distinguish objects with equal path, id, size and part."""

    async def main() -> None:
        number = next(_numbers)
        places = [f"memory://equal{number}/one", f"memory://equal{number}/two", f"memory://equal{number}-b/one"]
        for place in places:
            await write_alike(place)
        ids = {tuple((await manifest_of(open_store(place[:-3]), place[-3:])).ssts()) for place in places}
        assert len(ids) == 1
        for left in (3, 2):
            async with AsyncExitStack() as stack:
                settings = {"disk_cache": disk_cache(tmp_path), "cache": MemoryBudget(1 << 20), "env": inline()}
                opening = [shale.DbReader.open(place, **settings) for place in places]
                readers = [await stack.enter_async_context(each) for each in opening]
                for place, reader in zip([*places, *places], [*readers, *readers], strict=True):
                    assert await reader.get(b"key") == place.encode()
                if left == 2:
                    await readers[0].cache.evict(disk=True)
                    assert await readers[1].get(b"key") == places[1].encode()
            assert len(parts_in(tmp_path)) == left

    anyio.run(main)


def disk_cache(folder: Path) -> DiskCacheOptions:
    return DiskCacheOptions(str(folder), part_bytes=1 << 10)


def inline() -> Env:
    """Run without threads, so that background writes are complete or never happen."""
    return Env(SystemClock(), Random(1), InlineCpu())


def parts_in(folder: Path) -> set[Path]:
    return {file for file in folder.rglob("*-*") if file.is_file()}


async def write_alike(place: str) -> None:
    env = Env(FixedClock(), Random(7), InlineCpu())
    async with shale.Db.open(place, env=env) as db:
        await db.put(b"key", place.encode())


@with_lineage
async def test_warm_and_evict(lineage: Lineage, folder: Path) -> None:
    ssts = len((await manifest_of(open_store(lineage.url), "c")).ssts())
    async with shale.DbReader.open(lineage.place("c"), disk_cache=disk_cache(folder), env=inline()) as db:
        warmed = await db.cache.warm()
        assert warmed.ssts == ssts == 6
        assert warmed.blocks
        assert await scanned(db) == lineage.rows["c"]
        await db.cache.evict(disk=True)
        assert parts_in(folder) == set()
        assert (await db.cache.warm(start=CUT)).ssts == 2, "what the clone does not show of its ancestors stays cold"
        assert await scanned(db) == lineage.rows["c"]
        for sst_id in (await manifest_of(open_store(lineage.url), "c")).ssts():
            await db.cache.evict_sst(str(sst_id), disk=True)
            assert (await db.cache.warm_sst(str(sst_id))).ssts == 1
        assert await scanned(db) == lineage.rows["c"]


@with_lineage
async def test_verify(lineage: Lineage, folder: Path) -> None:
    for path in PATHS:
        async with shale.Admin(lineage.place(path)) as admin:
            report = await admin.verify(deep=True)
        assert report.findings == ()


@with_lineage
async def test_a_scan_under_way_finds_what_the_clone_no_longer_borrows(lineage: Lineage, folder: Path) -> None:
    """A compaction removes the ids from the manifest; a scan that began before knows the paths of the SSTs."""
    async with shale.Db.open(lineage.place("c"), block_cache_bytes=0) as db:
        begun = db.scan()
        found = {row.key: row.value for row in [await anext(aiter(begun))]}
        await compacted_away(lineage)
        await db.put(b"key-1", b"")
        await db.flush("memtable")
        assert db.status.manifest.external_dbs[0].sst_ids == ()
        assert found | {row.key: row.value async for row in begun} == lineage.rows["c"]


async def compacted_away(lineage: Lineage) -> None:
    """Remove all borrowed SSTs from L0, as a compaction does."""
    store = open_store(lineage.url)
    stored = await ManifestStore(store, "c", Env.system()).load()

    def change(current: Versioned[Manifest]) -> Manifest:
        manifest = current.value
        borrowed = {sst_id for entry in manifest.external_dbs for sst_id in entry.sst_ids}
        own = tuple(view for view in manifest.tree.l0 if view.sst.id not in borrowed)
        watermark = manifest.tree.l0[len(own)]
        tree = replace(
            manifest.tree,
            l0=own,
            last_compacted_l0_sst_view_id=watermark.id,
            last_compacted_l0_sst_id=watermark.sst.id,
        )
        return prune_external_ssts(replace(manifest, tree=tree))

    await stored.apply(change)
