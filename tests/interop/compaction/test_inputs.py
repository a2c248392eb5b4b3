"""Shale compacts SlateDB's databases to one run per tree: both libraries read the same rows as before.

Inputs are the golden databases, runs in which SlateDB split keys between SSTs, segments, and blocks of the version that
only old releases wrote.
"""

import json
import random
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

import shale
from shale.compaction.requests import FullSegment, Sources
from shale.compaction.status import Phase
from shale.engine.db_reader import DbReader
from shale.sst.options import SstOptions
from shale.types import (
    FLAG_CREATE_TS,
    CompactionStatus,
    Compression,
    Entry,
    Manifest,
    Row,
    RunId,
    Seq,
    SortedRun,
    SstView,
    TieredSpec,
    Tree,
    Ulid,
)
from shale_compactor.compactor import Compactor, CompactorOptions
from shale_compactor.execution.options import ExecutorOptions
from tests.golden_files import FIXTURES
from tests.interop.compaction.harness import CALM, ROOT, RUST_COMPACTS, Harness, run, submit
from tests.interop.compaction.test_workers import everything, splits_a_key
from tests.interop.read.databases import DATABASES, as_json, concatenate
from tests.interop.slatedb_databases import Concatenate, FirstBytes, Shape, flush, opened, put_all, scanned, until
from tests.unit.compactor.ssts import write_sst_v1

S = CompactionStatus
COMPACTED = [case for case in DATABASES if case[0] not in ("empty_db", "wal_only", "wal_multi_block")]
SHAPES = {
    "merge_operands": Shape(merge_operator=Concatenate()),
    "segments": Shape(extractor=FirstBytes("first3", 3)),
    "segments_compacted": Shape(extractor=FirstBytes("first3", 3)),
}


async def compact_everything(harness: Harness, compression: Compression = Compression.NONE) -> Manifest:
    """Run one job per tree: all its L0s and runs, into small SSTs."""
    executor = ExecutorOptions(
        sst=SstOptions(block_size_bytes=1024, compression=compression, min_filter_keys=5),
        max_sst_size_bytes=2048,
        max_subcompactions=3,
    )
    compactor = Compactor(harness.store, harness.root, harness.env, CompactorOptions(executor=executor, take_over=True))
    await compactor.start()
    while not await run_whole_trees(harness, compactor):
        pass
    after = await harness.manifest()
    assert all(not tree.l0 and len(tree.compacted) <= 1 for _, tree in after.trees())
    return after


async def run_whole_trees(harness: Harness, compactor: Compactor) -> bool:
    """Run one job per tree and return whether all ran here: a worker of SlateDB that is open may claim one first."""
    specs = list(whole_trees(await harness.manifest()))
    assert specs, "there is something to compact"
    jobs = {await submit(harness, spec) for spec in specs}
    ran: set[Ulid] = set()

    async def settled() -> bool:
        assert compactor.worker is not None
        await compactor.coordinator.run_round()
        for job in await compactor.worker.claim():
            await compactor.worker.execute(job)
            ran.add(job.plan.id)
        return not any(entry.is_active for entry in (await harness.compactions.read_latest()).value.entries)

    await until(settled)
    return jobs <= ran


def whole_trees(manifest: Manifest) -> Iterator[TieredSpec]:
    """Return all L0s and runs of each tree that is not empty."""
    fresh = max((run_.id for _, tree in manifest.trees() for run_ in tree.compacted), default=-1)
    for prefix, tree in manifest.trees():
        if tree.l0 or tree.compacted:
            fresh += 1
            yield TieredSpec(
                segment=prefix,
                l0_view_ids=tuple(view.id for view in tree.l0),
                sorted_runs=tuple(run_.id for run_ in tree.compacted),
                destination=tree.compacted[-1].id if tree.compacted else RunId(fresh),
            )


@pytest.mark.parametrize(("case", "name"), COMPACTED)
def test_every_golden_database(case, name, tmp_path):
    """Codecs, merge operands, large keys and values, prefix filters, clones, segments, checkpoints, runs."""
    shutil.copytree(FIXTURES / case, tmp_path / "store")
    live = json.loads((FIXTURES / case / "contents.json").read_text())["dbs"][name]["live"]

    async def test(harness: Harness) -> None:
        await compact_everything(harness, Compression(len(live) % len(Compression)))
        options: dict[str, Any] = {"merge_operator": concatenate} if case == "merge_operands" else {}
        if case == "separate_wal_store":
            options["wal_store"] = f"file://{tmp_path}/store/walstore"
        async with DbReader.open(name, store=harness.store, env=harness.env, **options) as reader:
            assert [as_json(row) async for row in reader.scan()] == live
        if case == "separate_wal_store":
            return  # its package names one store for everything
        async with opened(harness.rust, name, SHAPES.get(case, Shape())) as db:
            theirs = await scanned(db)
            assert [as_json(Row(*row)) for row in theirs] == live
            for key, value, *_ in theirs[::7]:
                assert await db.get(key) == value

    run(test, tmp_path / "store", name)


def test_a_run_in_which_keys_span_ssts(tmp_path):
    """Every version above the snapshot's barrier exists once, and no key spans two SSTs any more."""
    eager = {**RUST_COMPACTS, "worker": {**RUST_COMPACTS["worker"], "max_sst_size": 4096}}

    async def test(harness: Harness) -> None:
        async with opened(harness.rust, ROOT, Shape({"compactor_options": eager})) as db:
            await put_all(db, [(b"first", b"row")])
            harness.model[b"first"] = b"row"
            snapshot = await db.snapshot()
            for l0 in range(4):
                for version in range(40):
                    rows = [(b"key%02d" % number, b"%d.%d" % (l0, version) * 30) for number in range(20)]
                    harness.model.update(rows)
                    await put_all(db, rows)
                await flush(db)
            await until(harness.settled)
            before = await harness.manifest()
            assert splits_a_key(before.tree.compacted[0].ssts)
            after = await compact_everything(harness)
            assert not splits_a_key(after.tree.compacted[0].ssts)
            assert await everything(harness, after) == await everything(harness, before)
            del snapshot
        await harness.assert_all_read_everything()

    run(test, tmp_path)


def test_blocks_of_old_releases(tmp_path):
    """L0s and a run in format version 1, beside an L0 in version 2, become one run that SlateDB reads."""
    rng = random.Random(3)

    def rows(first_seq: int) -> list[Entry]:
        keys = sorted(rng.sample(range(400), 150))
        return [
            Entry(b"key%04d" % key, rng.randbytes(30), first_seq + at, FLAG_CREATE_TS, 5) for at, key in enumerate(keys)
        ]

    async def test(harness: Harness) -> None:
        views = []
        for number in range(3):
            entries = rows(1 + number * 1000)
            harness.model.update((entry.key, entry.value) for entry in entries)
            sst = await write_sst_v1(harness.store, ROOT, harness.env.ids.ulid(), entries, rows_per_block=7)
            views.append(SstView.identity(sst))
        oldest, *l0 = views
        tree = Tree(l0=tuple(reversed(l0)), compacted=(SortedRun(id=RunId(0), ssts=(oldest,)),))
        await harness.manifests.create_new(Manifest(tree=tree, last_l0_seq=Seq(2999), last_l0_clock_tick=10))
        async with opened(harness.rust, ROOT, Shape()) as db:
            assert {row[0]: row[1] for row in await scanned(db)} == harness.model
            await put_all(db, harness.next_rows(50))
            await flush(db)
        after = await compact_everything(harness)
        assert {view.sst.format_version for view in after.tree.compacted[0].ssts} == {2}
        await harness.assert_all_read_everything()

    run(test, tmp_path)


def test_it_runs_what_we_submit_for_one_segment(tmp_path):
    """I7 for segments: L0s of one segment into a run, then a full compaction of it; other segments do not change."""

    async def test(harness: Harness) -> None:
        shape = Shape({"compactor_options": CALM}, extractor=FirstBytes("first3", 3))
        async with (
            opened(harness.rust, ROOT, shape) as db,
            shale.Admin(ROOT, store=harness.store, env=harness.env) as admin,
        ):
            for number in range(4):
                rows = [(b"%s%03d" % (name, key), b"%d" % number) for name in (b"aaa", b"bbb") for key in range(30)]
                harness.model.update(rows)
                await put_all(db, rows)
                await flush(db)
            before = await harness.manifest()
            l0 = before.tree_of(b"aaa").l0
            for oldest_first in (l0[2:], l0[:2]):
                source = Sources(segment=b"aaa", l0_view_ids=tuple(view.id for view in oldest_first))
                (job,) = await admin.submit_compaction(source)
                assert (await admin.wait_for_compaction(job.id, poll_interval_s=0.02)).phase is Phase.COMPLETED
            (job,) = await admin.submit_compaction(FullSegment(b"aaa"))
            assert (await admin.wait_for_compaction(job.id, poll_interval_s=0.02)).phase is Phase.COMPLETED
            after = await harness.manifest()
            assert len(after.tree_of(b"aaa").compacted) == 1
            assert after.tree_of(b"bbb") == before.tree_of(b"bbb")
            assert {row[0]: row[1] for row in await scanned(db)} == harness.model
        await harness.assert_we_read_everything()

    run(test, tmp_path)


@pytest.mark.slow
def test_segments_are_compacted_by_turns(tmp_path):
    """Both coordinators compact the same segments in turn, while SlateDB's writer continues."""

    async def test(harness: Harness) -> None:
        shape = Shape({"compactor_options": None}, extractor=FirstBytes("first3", 3))
        busy = Shape({"compactor_options": RUST_COMPACTS}, extractor=FirstBytes("first3", 3))

        async def few_l0s() -> bool:
            trees = [tree for _, tree in (await harness.manifest()).trees()]
            return await harness.settled() and all(len(tree.l0) < 4 for tree in trees)

        for number in range(6):
            async with opened(harness.rust, ROOT, busy if number % 2 else shape) as db:
                for part in range(4):
                    rows = [
                        (b"%s%03d" % (name, key), b"%d.%d" % (number, part))
                        for name in (b"aaa", b"bbb", b"ccc")
                        for key in range(part, 90, 3)
                    ]
                    harness.model.update(rows)
                    await put_all(db, rows)
                    await flush(db)
                if number % 2:
                    await until(few_l0s)
            if not number % 2:
                await compact_everything(harness, Compression(number // 2))
        async with opened(harness.rust, ROOT, shape) as db:
            assert {row[0]: row[1] for row in await scanned(db)} == harness.model
        await harness.assert_we_read_everything()

    run(test, tmp_path)
