"""Destroying databases of SlateDB, also while SlateDB has them open (docs/reference/protocol.md 8.8)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from slatedb import uniffi as slate

import shale
from shale.env import Env
from shale.errors import InvalidDbState, InvalidDeletion, UnavailableError
from shale.gc.hard_destroy import DestroyTarget, destroy
from shale.protocol.checkpoints import create_checkpoint
from shale.protocol.manifest_store import ManifestStore
from shale.store.local_store.adapter import LocalStore
from shale.telemetry.metrics import Metrics
from shale.testing.faults import Fault
from shale.testing.faulty_store import FaultyStore, Rule
from tests.interop.slatedb_databases import Shape, flush, flush_wal, open_folder, opened, put_all, scanned

QUIET = Shape(settings={"garbage_collector_options": None, "compactor_options": None})
FAST = Shape(settings={"garbage_collector_options": None, "compactor_options": None, "manifest_poll_interval": "50ms"})
ROWS: list[tuple[bytes, bytes | None]] = [(b"k%02d" % number, b"v") for number in range(20)]


def admin_of_slatedb(folder: Path, path: str = "db") -> Any:
    return slate.AdminBuilder(path, open_folder(folder)).build()


def checkpoint_options() -> Any:
    return slate.CheckpointOptions(lifetime_ms=None, source=None, name=None)


async def filled(folder: Path, path: str = "db") -> None:
    async with opened(open_folder(folder), path, QUIET) as db:
        await put_all(db, ROWS)
        await flush(db)


async def cloned(folder: Path, parent: str, path: str) -> None:
    source = slate.CloneSourceSpec(path=parent, checkpoint=None, projection_range=None)
    await admin_of_slatedb(folder, path).create_clone_builder_from_source(source).build()


async def written(db: Any) -> None:
    """Write a durable row."""
    await db.put(b"k", b"w")
    await flush_wal(db)


def files_below(folder: Path, path: str) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in (folder / path).rglob("*") if file.is_file())


async def stopped_before_the_marker(folder: Path) -> None:
    """Seal the database, and stop before the marker is written."""
    env = Env.system()
    faulty = FaultyStore(LocalStore(folder), env.rng)
    faulty.add(Rule(fault=Fault.BEFORE, op="put", key_contains=".deleting"))
    with pytest.raises(UnavailableError):
        await destroy(DestroyTarget(store=faulty, root="db", env=env, metrics=Metrics()))


def test_a_sealed_database_is_of_no_use_to_slatedb(tmp_path: Path) -> None:
    """SlateDB makes no checkpoints and clones of it; its own deletion continues from Shale's."""

    async def scenario() -> None:
        await filled(tmp_path)
        await stopped_before_the_marker(tmp_path)
        theirs = admin_of_slatedb(tmp_path)
        with pytest.raises(slate.Error):
            await theirs.create_detached_checkpoint(checkpoint_options())
        with pytest.raises(slate.Error):
            await cloned(tmp_path, "db", "child")
        assert await theirs.delete_db(True)
        assert files_below(tmp_path, "db") == []

    asyncio.run(scenario())


def test_a_writer_of_slatedb_s_is_fenced(tmp_path: Path) -> None:
    async def scenario() -> None:
        db = await slate.DbBuilder("db", open_folder(tmp_path)).build()
        await db.put(b"k", b"v")
        async with shale.Admin(f"file://{tmp_path}/db") as admin:
            await admin.destroy("soft", confirm=True)
        with pytest.raises(slate.Error.Closed):
            await written(db)
        with pytest.raises(InvalidDbState, match="destroyed"):
            await shale.Db.open(f"file://{tmp_path}/db")
        async with shale.Admin(f"file://{tmp_path}/db") as admin:
            await admin.destroy("hard", confirm=True)
        assert files_below(tmp_path, "db") == []

    asyncio.run(scenario())


def test_a_destroy_that_slatedb_began_is_completed(tmp_path: Path) -> None:
    async def scenario() -> None:
        await filled(tmp_path, "parent")
        await cloned(tmp_path, "parent", "db")
        await admin_of_slatedb(tmp_path, "db").create_detached_checkpoint(checkpoint_options())
        (tmp_path / "db" / ".deleting").write_bytes(b"")
        async with shale.Admin(f"file://{tmp_path}/db") as admin:
            await admin.destroy(confirm=True)
        assert files_below(tmp_path, "db") == []
        left = await admin_of_slatedb(tmp_path, "parent").list_checkpoints(None)
        assert all(each.expire_time_secs for each in left)

    asyncio.run(scenario())


def test_a_parent_of_slatedb_s_clone_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        await filled(tmp_path, "parent")
        await cloned(tmp_path, "parent", "child")
        async with shale.Admin(f"file://{tmp_path}/parent") as parent:
            for entry in await parent.checkpoints.list():
                if entry.expire_s:
                    await parent.checkpoints.delete(entry.id)
            with pytest.raises(InvalidDeletion):
                await parent.destroy(confirm=True)
            async with opened(open_folder(tmp_path), "child", QUIET) as db:
                assert len(await scanned(db)) == len(ROWS)
            async with shale.Admin(f"file://{tmp_path}/child") as child:
                told = await child.destroy(confirm=True)
            assert told.destroyed is not None
            assert told.destroyed.parents == ("parent",)
            await parent.destroy(confirm=True)
        assert files_below(tmp_path, "") == []

    asyncio.run(scenario())


def test_slatedb_deletes_what_we_refuse(tmp_path: Path) -> None:
    """SlateDB checks neither checkpoints nor other objects below the path (docs/reference/protocol.md 14.5)."""

    async def scenario() -> None:
        await filled(tmp_path, "db")
        await filled(tmp_path, "db/nested")
        stored = await ManifestStore(LocalStore(tmp_path), "db", Env.system()).load()
        await create_checkpoint(stored, Env.system(), lifetime_ms=None)
        async with shale.Admin(f"file://{tmp_path}/db") as admin:
            with pytest.raises(InvalidDeletion, match="nested"):
                await admin.destroy(confirm=True)
        await admin_of_slatedb(tmp_path).delete_db(True)
        assert files_below(tmp_path, "db") == []

    asyncio.run(scenario())
