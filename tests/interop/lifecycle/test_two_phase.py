"""SlateDB and databases on stores without conditional writes (docs/reference/protocol.md 4.13, 12).

SlateDB would create files without commit records, so it must not open such a database.  Names of staged objects that a
migration leaves beside native files stop neither library.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from slatedb import uniffi as slate

import shale
from shale.env import Env
from shale.store.connect import connect
from shale.store.options import StoreOptions
from shale.store.two_phase.store import two_phase_of
from shale.types import CasMode
from tests.interop.slatedb_databases import Shape, flush, flush_wal, open_folder, opened, put_all, scanned

ROWS: list[tuple[bytes, bytes | None]] = [(b"k%02d" % number, b"v") for number in range(20)]
STAGED = ".01ARZ3NDEKTSV4RRFFQ69G5FAV.0123456789abcdef"
"""What the name of a staged object has after that of its destination."""


def two_phase_options(folder: Path) -> StoreOptions:
    return StoreOptions(cas=CasMode.TWO_PHASE, transactional_url=f"sqlite://{folder}/records.db")


async def two_phase_database(folder: Path) -> None:
    """Write a database with two-phase creates; its last row is only in the WAL."""
    options = two_phase_options(folder)
    store = connect(f"file://{folder}/store", Env.system(), options=options)
    two_phase = two_phase_of(store)
    assert two_phase is not None
    await two_phase.records.create_schema()
    await store.aclose()
    async with shale.Db.open(f"file://{folder}/store/db", store_options=options) as db:
        for key, value in ROWS:
            assert value is not None
            await db.put(key, value)
        await db.flush("memtable")
        await db.put(b"last", b"row")


def admin(folder: Path) -> Any:
    return slate.AdminBuilder("db", open_folder(folder)).build()


async def open_writer(folder: Path) -> None:
    async with opened(open_folder(folder), "db", Shape()):
        pass


async def open_reader(folder: Path) -> None:
    await slate.DbReaderBuilder("db", open_folder(folder)).build()


async def collect(folder: Path) -> None:
    at_once = slate.GarbageCollectorDirectoryOptions(interval_ms=None, min_age_ms=0, dry_run=False)
    options = slate.GarbageCollectorOptions(
        manifest_options=at_once,
        wal_options=at_once,
        compacted_options=at_once,
        compactions_options=at_once,
        wal_fence_options=None,
        detach_options=None,
    )
    await admin(folder).run_gc_once(options)


async def create_checkpoint(folder: Path) -> None:
    await admin(folder).create_detached_checkpoint(slate.CheckpointOptions(lifetime_ms=None, source=None, name=None))


async def clone(folder: Path) -> None:
    source = slate.CloneSourceSpec(path="db", checkpoint=None, projection_range=None)
    await slate.AdminBuilder("c", open_folder(folder)).build().create_clone_builder_from_source(source).build()


async def read_manifest(folder: Path) -> None:
    await admin(folder).read_manifest(None)


def files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize(
    "use", [open_writer, open_reader, create_checkpoint, clone, read_manifest], ids=lambda use: use.__name__
)
async def test_slatedb_refuses_a_two_phase_database_and_changes_nothing(
    use: Callable[[Path], Awaitable[None]], tmp_path: Path
) -> None:
    await two_phase_database(tmp_path)
    before = files(tmp_path / "store")
    with pytest.raises(slate.Error, match="unsupported manifest format version"):
        await use(tmp_path / "store")
    assert files(tmp_path / "store") == before
    async with shale.Db.open(f"file://{tmp_path}/store/db", store_options=two_phase_options(tmp_path)) as db:
        assert {row.key async for row in db.scan()} == {b"last", *(key for key, _ in ROWS)}


@pytest.mark.slow
@pytest.mark.anyio
async def test_slatedb_collects_nothing_of_a_two_phase_database(tmp_path: Path) -> None:
    await two_phase_database(tmp_path)
    before = files(tmp_path / "store")
    await collect(tmp_path / "store")  # logs the error of each task, and returns
    assert files(tmp_path / "store") == before


@pytest.mark.anyio
async def test_names_of_staged_objects_stop_neither_library(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    async with opened(open_folder(store), "db", Shape()) as db:
        await put_all(db, ROWS)
        await flush(db)
    litter = [
        *(f"db/manifest/{number:020}.manifest{STAGED}" for number in (1, 2, 99)),
        *(f"db/wal/{number:020}.sst{STAGED}" for number in (1, 99)),
        f"db/compactions/{1:020}.compactions{STAGED}",
    ]
    for name in litter:
        (store / name).parent.mkdir(exist_ok=True)
        (store / name).write_bytes(b"staged")
    async with opened(open_folder(store), "db", Shape()) as db:
        assert [row[0] for row in await scanned(db)] == [key for key, _ in ROWS]
        await put_all(db, [(b"theirs", b"v")])
        await flush(db)
    async with shale.Db.open(f"file://{store}/db") as ours:
        await ours.put(b"ours", b"v")
        await ours.flush("memtable")
    async with opened(open_folder(store), "db", Shape()) as db:
        assert {row[0] for row in await scanned(db)} == {b"ours", b"theirs", *(key for key, _ in ROWS)}
        await flush_wal(db)
    await collect(store)
    async with shale.DbReader.open(f"file://{store}/db") as reader:
        assert {row.key async for row in reader.scan()} == {b"ours", b"theirs", *(key for key, _ in ROWS)}
    assert set(litter) <= files(store).keys()
