"""Clones, projections and unions of both implementations on one another (docs/protocol.md 14.6: I6, I11)."""

import asyncio
from collections.abc import Collection
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import anyio
import pytest
from slatedb import uniffi as slate

import shale
from shale.admin.clones import source
from shale.admin.compactions import CompactionAdmin
from shale.clones.clone_manifest import cloned
from shale.clones.lift import duplicated
from shale.clones.neighbours import Neighbours
from shale.clones.request import CloneRequest
from shale.clones.sourcing import find_source
from shale.compaction.requests import Sources
from shale.compaction.size_tiered import SizeTiered
from shale.env import Env
from shale.errors import CloneIncorrectExternalDbCheckpoint
from shale.protocol.manifest_store import ManifestStore
from shale.sst.verify.codes import Code
from shale.store.connect import connect
from shale.types import Tree
from shale_compactor.process import Compactor, CompactorOptions
from tests.interop.compaction_house import FAST, RUST_COMPACTS, WORKS, executor_options
from tests.interop.database_files import DatabaseFiles
from tests.interop.slatedb_writes import Shape, flush, open_folder, opened, put_all, scanned, until

Rows = dict[bytes, bytes]
QUIET = Shape(settings={"garbage_collector_options": None})
ALL = {b"k%02d" % number: b"first" for number in range(20)}
CUT = b"k10"
DUPLICATES = (Code.L0_DUPLICATE, Code.L0_ORDER)
OURS, THEIRS = "ours", "slatedb"


def compacting_by_slatedb() -> Shape:
    options = {**RUST_COMPACTS, "scheduler_options": {"min_compaction_sources": "2", "max_compaction_sources": "8"}}
    return Shape(
        settings={"compactor_options": options, "manifest_poll_interval": "50ms", "garbage_collector_options": None}
    )


async def fill(folder: Path, path: str, rows: Rows, *, by: str, tables: int = 3) -> None:
    """Every L0 holds every key."""
    for number in range(tables):
        values = {key: b"%s %d" % (value, number) for key, value in rows.items()}
        if by == THEIRS:
            async with opened(open_folder(folder), path, QUIET) as db:
                await put_all(db, [*values.items()])
                await flush(db)
        else:
            async with shale.Db.open(f"file://{folder}/{path}", l0_max_ssts=100) as db:
                for key, value in values.items():
                    await db.put(key, value)
                await db.flush("wal")
                await db.flush("memtable")


async def clone(folder: Path, path: str, *sources: tuple[str, bytes | None, bytes | None], by: str) -> None:
    """A clone of parts: path, first key, end."""
    if by == OURS:
        async with shale.Admin(f"file://{folder}/{path}") as admin:
            await admin.clones.create(*(source(name, start=start, end=end) for name, start, end in sources))
        return
    specs = [
        slate.CloneSourceSpec(path=name, checkpoint=None, projection_range=_range(start, end))
        for name, start, end in sources
    ]
    builder = slate.AdminBuilder(path, open_folder(folder)).build().create_clone_builder_from_source(specs[0])
    for spec in specs[1:]:
        builder.with_source(spec)
    await builder.build()


def _range(start: bytes | None, end: bytes | None) -> Any:
    if start is None and end is None:
        return None
    return slate.KeyRange(start=start, start_inclusive=True, end=end, end_inclusive=False)


async def read_by_both(folder: Path, path: str, *, past: Collection[Code] = ()) -> Rows:
    """What a reader of ours sees; SlateDB's writer must see the same, and a check of the whole database finds nothing.

    Args:
        past: what may be found fault with in versions before the last.
    """
    async with shale.Admin(f"file://{folder}/{path}") as admin:
        findings = (await admin.verify()).findings
    latest = f"{path}/manifest/{max(DatabaseFiles(folder, path).manifests()):020}.manifest"
    assert [each for each in findings if each.code not in past or each.object == latest] == []
    async with shale.DbReader.open(f"file://{folder}/{path}") as reader:
        ours = {row.key: row.value async for row in reader.scan()}
    async with opened(open_folder(folder), path, QUIET) as db:
        theirs = {row[0]: row[1] for row in await scanned(db)}
    assert ours == theirs
    return ours


def last(rows: Rows, tables: int = 3) -> Rows:
    return {key: b"%s %d" % (value, tables - 1) for key, value in rows.items()}


@pytest.mark.parametrize(("writes", "first", "second"), [*product((OURS, THEIRS), repeat=3)])
def test_i6_nested_clones(tmp_path: Path, writes: str, first: str, second: str) -> None:
    async def story() -> None:
        await fill(tmp_path, "g", ALL, by=writes)
        await clone(tmp_path, "p", ("g", None, None), by=first)
        assert await read_by_both(tmp_path, "p") == last(ALL)
        await fill(tmp_path, "p", {b"k05": b"second"}, by=writes)
        await clone(tmp_path, "c", ("p", None, None), by=second)
        wanted = last(ALL) | {b"k05": b"second 2"}
        assert await read_by_both(tmp_path, "c") == wanted
        assert await read_by_both(tmp_path, "g") == last(ALL)
        youngest = DatabaseFiles(tmp_path, "c").latest()
        assert [entry.path for entry in youngest.external_dbs] == ["g", "p"]
        for entry in youngest.external_dbs:
            assert entry.final_checkpoint_id is not None
            assert DatabaseFiles(tmp_path, entry.path).latest().checkpoint(entry.final_checkpoint_id) is not None
        # Each of us finds what the other has made, and that there is nothing left to do.
        other = THEIRS if second == OURS else OURS
        await clone(tmp_path, "c", ("p", None, None), by=other)
        async with shale.Admin(f"file://{tmp_path}/c") as admin:
            with pytest.raises(CloneIncorrectExternalDbCheckpoint):
                await admin.clones.create(source("elsewhere"))

    asyncio.run(story())


@pytest.mark.parametrize("nested", [False, True])
def test_i6_what_we_began_is_finished_by_slatedb(tmp_path: Path, nested: bool) -> None:
    """Manifest 1 is all that is there; SlateDB finds the ids in it and goes on (docs/protocol.md 10.2, step 3)."""

    async def story() -> None:
        await fill(tmp_path, "p", ALL, by=THEIRS)
        if nested:
            await clone(tmp_path, "g", ("p", None, None), by=THEIRS)
        parent = "g" if nested else "p"
        env = Env.system()
        store = connect(f"file://{tmp_path}", env)
        neighbours = Neighbours(store, env)
        request = CloneRequest(path="c", sources=(source(parent),))
        begun = await find_source(neighbours, request, request.sources[0])
        await neighbours.manifests("c").create_new(cloned(begun.source, env.ids.uuid))
        assert not DatabaseFiles(tmp_path, "c").latest().initialized
        await clone(tmp_path, "c", (parent, None, None), by=THEIRS)
        assert await read_by_both(tmp_path, "c") == last(ALL)
        async with shale.Admin("c", store=store) as admin:
            assert not (await admin.clones.create(parent)).is_new
        await store.aclose()

    asyncio.run(story())


@pytest.mark.parametrize(("writes", "splits"), [*product((OURS, THEIRS), repeat=2)])
def test_i11_split_and_union_compacted_by_slatedb(tmp_path: Path, writes: str, splits: str) -> None:
    """The union is ours: SlateDB's own loses rows in its first compaction."""

    async def story() -> None:
        await split(tmp_path, writes=writes, by=splits)
        await clone(tmp_path, "u", ("l", None, CUT), ("r", CUT, None), by=OURS)
        assert await read_by_both(tmp_path, "u") == last(ALL)
        async with opened(open_folder(tmp_path), "u", compacting_by_slatedb()):
            await until(lambda: is_compacted(tmp_path, "u"))
        assert await read_by_both(tmp_path, "u") == last(ALL)

    asyncio.run(story())


@pytest.mark.parametrize(("writes", "splits"), [*product((OURS, THEIRS), repeat=2)])
def test_i11_a_union_of_slatedb_is_healed_by_our_coordinator(tmp_path: Path, writes: str, splits: str) -> None:
    async def story() -> None:
        await split(tmp_path, writes=writes, by=splits)
        await clone(tmp_path, "u", ("l", None, None), ("r", None, None), by=THEIRS)
        files = DatabaseFiles(tmp_path, "u")
        assert duplicated(files.latest().tree)
        await compact_by_us(tmp_path, "u")
        assert files.latest().tree.l0 == ()
        assert len(files.latest().tree.compacted) == 1
        assert await read_by_both(tmp_path, "u", past=DUPLICATES) == last(ALL)
        # From here on SlateDB may compact it as well.
        await fill(tmp_path, "u", ALL, by=THEIRS, tables=4)
        async with opened(open_folder(tmp_path), "u", compacting_by_slatedb()):
            await until(lambda: is_compacted(tmp_path, "u"))
        assert await read_by_both(tmp_path, "u", past=DUPLICATES) == last(ALL, 4)

    asyncio.run(story())


@pytest.mark.parametrize("compact", [False, True])
def test_i11_lifted_l0s_and_joined_runs_compacted_by_slatedb(tmp_path: Path, compact: bool) -> None:
    """Halves with a gap between them cannot be joined, so one SST is shown in several runs; or in one, twice."""

    async def story() -> None:
        await fill(tmp_path, "p", ALL, by=THEIRS)
        await compact_by_us(tmp_path, "p")
        newer = dict.fromkeys(ALL, b"newer")
        await fill(tmp_path, "p", newer, by=THEIRS)
        await clone(tmp_path, "l", ("p", None, b"k05"), by=OURS)
        await clone(tmp_path, "r", ("p", CUT, None), by=OURS)
        async with shale.Admin(f"file://{tmp_path}/u") as admin:
            await admin.clones.create("l", "r", compact_union=compact)
        files = DatabaseFiles(tmp_path, "u")
        assert files.latest().tree.l0 == ()
        assert len(files.latest().tree.compacted) == (4 if compact else 8)
        wanted = {key: value for key, value in last(newer).items() if not b"k05" <= key < CUT}
        assert await read_by_both(tmp_path, "u") == wanted
        async with opened(open_folder(tmp_path), "u", compacting_by_slatedb()):
            await until(lambda: is_almost_one_run(tmp_path, "u"))
        assert await read_by_both(tmp_path, "u") == wanted

    asyncio.run(story())


async def is_almost_one_run(folder: Path, path: str) -> bool:
    return len((await tree_at_work(folder, path)).compacted) < 4


async def split(folder: Path, *, writes: str, by: str) -> None:
    await fill(folder, "p", ALL, by=writes)
    await clone(folder, "l", ("p", None, CUT), by=by)
    await clone(folder, "r", ("p", CUT, None), by=by)
    assert await read_by_both(folder, "l") == {key: value for key, value in last(ALL).items() if key < CUT}
    assert await read_by_both(folder, "r") == {key: value for key, value in last(ALL).items() if key >= CUT}


async def is_compacted(folder: Path, path: str) -> bool:
    return len((await tree_at_work(folder, path)).l0) < 2


async def tree_at_work(folder: Path, path: str) -> Tree:
    """The tree of a database that somebody is changing, so that there are unfinished files."""
    env = Env.system()
    store = connect(f"file://{folder}", env)
    try:
        return (await ManifestStore(store, path, env).read_latest()).value.tree
    finally:
        await store.aclose()


async def compact_by_us(folder: Path, path: str) -> None:
    """Start our compactor, and have everything in one run."""
    env = Env.system()
    store = connect(f"file://{folder}", env)
    passive = replace(FAST, scheduler=SizeTiered(min_compaction_sources=1000, max_compaction_sources=1000))
    options = CompactorOptions(coordinator=passive, worker=WORKS, executor=executor_options(), take_over=True)
    compactor = Compactor(store, path, env, options)
    await compactor.start()
    tree = DatabaseFiles(folder, path).latest().tree
    assert not duplicated(tree), "healed before anything else"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(compactor.run)
        admin = CompactionAdmin(store, path, env)
        everything = Sources(
            l0_view_ids=tuple(view.id for view in tree.l0), sorted_runs=tuple(run.id for run in tree.compacted)
        )
        (job,) = await admin.submit(everything)
        assert (await admin.wait(job.id, poll_interval_s=0.1)).error is None
        tasks.cancel_scope.cancel()
    await store.aclose()
