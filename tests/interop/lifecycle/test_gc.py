"""Shale's collector beside SlateDB's writer, compactor, checkpoints and clones.

Source: docs/reference/protocol.md 14.6: I3, I4, I9.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from slatedb import uniffi as slate

import shale
from shale.env import Env
from shale.gc.collector import Collector
from shale.gc.options import GcOptions, Task, TaskOptions
from shale.store.connect import connect
from tests.interop.compaction.slatedb_options import default_compactor_options
from tests.interop.database_files import DatabaseFiles, check_bytes
from tests.interop.slatedb_databases import Shape, flush, open_folder, opened, put_all, scanned, until

QUICK = TaskOptions(interval_s=0.2, min_age_s=0.0)
EVERYTHING = GcOptions(**{task.value: QUICK for task in Task if task is not Task.WAL_FENCE})


def compacting() -> Shape:
    options = default_compactor_options()
    options |= {"poll_interval": "50ms", "commit_compacted_interval": "50ms", "checkpoint_lifetime": "1s"}
    options["worker"] |= {"compactions_poll_interval": "50ms", "heartbeat_interval": "50ms"}
    return Shape(settings={"compactor_options": options, "manifest_poll_interval": "50ms", **WITHOUT_GC})


WITHOUT_GC = {"garbage_collector_options": None}


@asynccontextmanager
async def collector(folder: Path, root: str) -> AsyncIterator[Collector]:
    env = Env.system()
    store = connect(f"file://{folder}", env)
    try:
        yield Collector(store, root, env, EVERYTHING)
    finally:
        await store.aclose()


@pytest.mark.slow
def test_it_collects_while_slatedb_writes_and_compacts(tmp_path: Path) -> None:
    """Without a min_age, the scan at the end would miss an object that was deleted too early."""

    async def write() -> dict[bytes, bytes]:
        model = {}
        async with opened(open_folder(tmp_path), "db", compacting()) as db:
            for round_ in range(25):
                rows = [(b"k%03d" % ((7 * round_ + n) % 300), b"%d" % round_) for n in range(40)]
                model |= dict(rows)
                await put_all(db, rows)
                await flush(db)
                await asyncio.sleep(0.05)
            await asyncio.sleep(1.5)
        return model

    async def scenario() -> tuple[dict[bytes, bytes], list[Any]]:
        async with collector(tmp_path, "db") as gc, anyio.create_task_group() as tasks:
            created = asyncio.ensure_future(write())
            await until(lambda: exists(DatabaseFiles(tmp_path, "db")))
            tasks.start_soon(gc.run)
            model = await created
            tasks.cancel_scope.cancel()
        async with opened(open_folder(tmp_path), "db", Shape(settings=WITHOUT_GC)) as db:
            return model, await scanned(db)

    model, rows = asyncio.run(scenario())
    assert {row[0]: row[1] for row in rows} == model
    files = DatabaseFiles(tmp_path, "db")
    assert {row.key: row.value for row in files.rows()} == model
    check_bytes(files)
    assert min(files.manifests()) > 20, "old manifests are gone"
    assert min(files.wal_files()) == 1, "fences stay"
    live = len(files.latest().ssts())
    assert live <= len(files.compacted()) < live + 15, "old SSTs are gone"


@pytest.mark.slow
def test_a_checkpoint_of_slatedb_keeps_what_it_needs(tmp_path: Path) -> None:
    async def scenario() -> tuple[list[Any], list[Any]]:
        store = open_folder(tmp_path)
        async with opened(store, "db", compacting()) as db:
            await put_all(db, [(b"a", b"old"), (b"b", b"old")])
            await flush(db)
            admin = slate.AdminBuilder("db", store).build()
            made = await admin.create_detached_checkpoint(
                slate.CheckpointOptions(lifetime_ms=None, source=None, name="keep")
            )
            before = await scanned(db)
            for number in range(8):
                await put_all(db, [(b"a", b"%d" % number)])
                await flush(db)
            await asyncio.sleep(1.5)
        async with collector(tmp_path, "db") as gc:
            await gc.run_once()
        assert made.manifest_id in DatabaseFiles(tmp_path, "db").manifests()
        builder = slate.CloneSourceSpec(path="db", checkpoint=made.id, projection_range=None)
        cloning = slate.AdminBuilder("copy", store).build().create_clone_builder_from_source(builder)
        cloning.with_clone_path("copy")
        await cloning.build()
        async with opened(store, "copy", Shape(settings=WITHOUT_GC)) as db:
            return before, await scanned(db)

    before, after = asyncio.run(scenario())
    assert after == before


@pytest.mark.slow
def test_a_clone_that_rewrote_everything_lets_go_of_its_parent(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = open_folder(tmp_path)
        async with opened(store, "parent", Shape(settings=WITHOUT_GC)) as db:
            for number in range(5):
                await put_all(db, [(b"k%d" % number, b"v")])
                await flush(db)
        spec = slate.CloneSourceSpec(path="parent", checkpoint=None, projection_range=None)
        cloning = slate.AdminBuilder("clone", store).build().create_clone_builder_from_source(spec)
        cloning.with_clone_path("clone")
        await cloning.build()
        clone, parent = DatabaseFiles(tmp_path, "clone"), DatabaseFiles(tmp_path, "parent")
        (entry,) = clone.latest().external_dbs
        assert entry.final_checkpoint_id is not None
        assert parent.latest().checkpoint(entry.final_checkpoint_id) is not None

        async with collector(tmp_path, "clone") as gc:
            await gc.sweep(Task.DETACH)
            assert clone.latest().external_dbs == (entry,), "the clone still reads the parent"
            async with opened(store, "clone", compacting()) as db:
                await until(lambda: rewritten(clone))
                await asyncio.sleep(2.1)
                await gc.sweep(Task.DETACH)
                assert len(await scanned(db)) == 5
        assert clone.latest().external_dbs == ()
        assert parent.latest().checkpoint(entry.final_checkpoint_id) is None

    asyncio.run(scenario())


async def exists(files: DatabaseFiles) -> bool:
    return bool(files.manifests())


async def rewritten(clone: DatabaseFiles) -> bool:
    return not any(external.sst_ids for external in clone.latest().external_dbs)


@pytest.mark.slow
def test_slatedb_collects_a_database_of_ours(tmp_path: Path) -> None:
    """I4: SlateDB's collector without a min_age on Shale's database, then Shale's reader, writer and collector."""

    async def scenario() -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
        url = f"file://{tmp_path}/db"
        model = {}
        async with shale.Db.open(url) as db:
            for number in range(6):
                model[b"k%d" % number] = b"%d" % number
                await db.put(b"k%d" % number, b"%d" % number)
                await db.flush("memtable")
        before = DatabaseFiles(tmp_path, "db").manifests()
        await asyncio.sleep(0.05)
        at_once = slate.GarbageCollectorDirectoryOptions(interval_ms=None, min_age_ms=0, dry_run=False)
        options = slate.GarbageCollectorOptions(
            manifest_options=at_once,
            wal_options=at_once,
            wal_fence_options=None,
            compacted_options=at_once,
            compactions_options=at_once,
            detach_options=None,
        )
        await slate.AdminBuilder("db", open_folder(tmp_path)).build().run_gc_once(options)
        assert list(DatabaseFiles(tmp_path, "db").manifests()) == [max(before)]
        async with shale.DbReader.open(url) as reader:
            rows = {bytes(row.key): bytes(row.value) async for row in reader.scan()}
        async with shale.Db.open(url) as db:
            await db.put(b"k0", b"again")
            await db.flush("memtable")
        async with collector(tmp_path, "db") as gc:
            await gc.run_once()
        async with shale.DbReader.open(url) as reader:
            after = {bytes(row.key): bytes(row.value) async for row in reader.scan()}
        assert after == {**model, b"k0": b"again"}
        return model, rows

    model, rows = asyncio.run(scenario())
    assert rows == model
