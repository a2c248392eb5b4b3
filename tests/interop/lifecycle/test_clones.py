"""Each implementation uses clones, projections and unions of the other (docs/reference/protocol.md 14.6: I6, I11)."""

import asyncio
from dataclasses import replace
from itertools import product
from pathlib import Path

import anyio
import pytest

import shale
from shale.admin.clones import source
from shale.admin.compactions import CompactionAdmin
from shale.clones.clone_manifest import cloned
from shale.clones.database_catalog import DatabaseCatalog
from shale.clones.promote_l0 import duplicated
from shale.clones.request import CloneRequest
from shale.clones.sources import resolve_source
from shale.compaction.policies.size_tiered import SizeTiered
from shale.compaction.requests import Sources
from shale.env import Env
from shale.errors import CloneIncorrectExternalDbCheckpoint
from shale.protocol.manifest_store import ManifestStore
from shale.sst.verify.codes import Code
from shale.store.connect import connect
from shale.types import Tree
from shale_compactor.compactor import Compactor, CompactorOptions
from tests.interop.compaction.harness import FAST, RUST_COMPACTS, WORKS, executor_options
from tests.interop.database_files import DatabaseFiles
from tests.interop.lifecycle.cloning import ALL, CUT, OURS, THEIRS, clone, fill, last, read_by_both, split
from tests.interop.slatedb_databases import Shape, open_folder, opened, until

DUPLICATES = (Code.L0_DUPLICATE, Code.L0_ORDER)


def compacting_by_slatedb() -> Shape:
    options = {**RUST_COMPACTS, "scheduler_options": {"min_compaction_sources": "2", "max_compaction_sources": "8"}}
    return Shape(
        settings={"compactor_options": options, "manifest_poll_interval": "50ms", "garbage_collector_options": None}
    )


@pytest.mark.parametrize(("writes", "first", "second"), [*product((OURS, THEIRS), repeat=3)])
def test_nested_clones_have_the_rows_of_their_parents(tmp_path: Path, writes: str, first: str, second: str) -> None:
    """I6: both implementations read nested clones, and complete the clones of the other."""

    async def scenario() -> None:
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

    asyncio.run(scenario())


@pytest.mark.parametrize("nested", [False, True])
def test_slatedb_completes_a_clone_that_shale_began(tmp_path: Path, nested: bool) -> None:
    """I6: only manifest 1 exists; SlateDB finds the ids in it and continues.

    Source: docs/reference/protocol.md 10.2, step 3.
    """

    async def scenario() -> None:
        await fill(tmp_path, "p", ALL, by=THEIRS)
        if nested:
            await clone(tmp_path, "g", ("p", None, None), by=THEIRS)
        parent = "g" if nested else "p"
        env = Env.system()
        store = connect(f"file://{tmp_path}", env)
        neighbours = DatabaseCatalog(store, env)
        request = CloneRequest(path="c", sources=(source(parent),))
        begun = await resolve_source(neighbours, request, request.sources[0])
        await neighbours.manifests("c").create_new(cloned(begun.source, env.ids.uuid))
        assert not DatabaseFiles(tmp_path, "c").latest().initialized
        await clone(tmp_path, "c", (parent, None, None), by=THEIRS)
        assert await read_by_both(tmp_path, "c") == last(ALL)
        async with shale.Admin("c", store=store) as admin:
            assert not (await admin.clones.create(parent)).is_new
        await store.aclose()

    asyncio.run(scenario())


@pytest.mark.parametrize(("writes", "splits"), [*product((OURS, THEIRS), repeat=2)])
def test_a_union_compacted_by_slatedb_keeps_its_rows(tmp_path: Path, writes: str, splits: str) -> None:
    """I11: Shale makes the union: SlateDB's own union loses rows in its first compaction."""

    async def scenario() -> None:
        await split(tmp_path, writes=writes, by=splits)
        await clone(tmp_path, "u", ("l", None, CUT), ("r", CUT, None), by=OURS)
        assert await read_by_both(tmp_path, "u") == last(ALL)
        async with opened(open_folder(tmp_path), "u", compacting_by_slatedb()):
            await until(lambda: is_compacted(tmp_path, "u"))
        assert await read_by_both(tmp_path, "u") == last(ALL)

    asyncio.run(scenario())


@pytest.mark.parametrize(("writes", "splits"), [*product((OURS, THEIRS), repeat=2)])
def test_the_coordinator_repairs_a_union_of_slatedb(tmp_path: Path, writes: str, splits: str) -> None:
    """I11: the union lists L0s twice; after the repair both implementations compact and read it."""

    async def scenario() -> None:
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

    asyncio.run(scenario())


@pytest.mark.parametrize("compact", [False, True])
def test_promoted_l0s_and_joined_runs_keep_their_rows_in_slatedb(tmp_path: Path, compact: bool) -> None:
    """I11: halves with a gap cannot be joined, so one SST is in several runs, or twice in one run."""

    async def scenario() -> None:
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

    asyncio.run(scenario())


async def is_almost_one_run(folder: Path, path: str) -> bool:
    return len((await tree_at_work(folder, path)).compacted) < 4


async def is_compacted(folder: Path, path: str) -> bool:
    return len((await tree_at_work(folder, path)).l0) < 2


async def tree_at_work(folder: Path, path: str) -> Tree:
    """Return the tree of a database during writes, when there are unfinished files."""
    env = Env.system()
    store = connect(f"file://{folder}", env)
    try:
        return (await ManifestStore(store, path, env).read_latest()).value.tree
    finally:
        await store.aclose()


async def compact_by_us(folder: Path, path: str) -> None:
    """Run Shale's compactor until all rows are in one run."""
    env = Env.system()
    store = connect(f"file://{folder}", env)
    passive = replace(FAST, scheduler=SizeTiered(min_compaction_sources=1000, max_compaction_sources=1000))
    options = CompactorOptions(coordinator=passive, worker=WORKS, executor=executor_options(), take_over=True)
    compactor = Compactor(store, path, env, options)
    await compactor.start()
    tree = DatabaseFiles(folder, path).latest().tree
    assert not duplicated(tree), "repaired before anything else"
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
