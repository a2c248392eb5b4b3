"""Workers of both libraries under coordinators of both, killed in the middle of a job (docs/reference/protocol.md
14.6, I8).

Keys have many versions, which a snapshot keeps, and outputs are small: SlateDB splits keys between SSTs, so a worker
that resumes after its outputs begins inside of a key.
"""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest

from shale.compaction.cancel import with_cancelled
from shale.engine.db_reader import DbReader
from shale.iter.source import drain
from shale.sst.cache import BlockCache
from shale.sst.paths import SstPaths
from shale.sst.reader import SstReader
from shale.sst.source import SstViewsSource
from shale.types import Compaction, CompactionStatus, Manifest, RunId, SstView, TieredSpec, Ulid
from shale_compactor.execution.executor import Executor
from shale_compactor.execution.transforms import Transforms
from shale_compactor.worker.worker import Worker
from tests.integration.daemons.daemon_process import Daemon, running
from tests.interop.compaction.harness import ROOT, RUST_COMPACTS, WORKS, Harness, executor_options, run, submit
from tests.interop.compaction.slatedb_worker_process import SECONDS_PER_MERGE, SlowConcatenate, versioned, write
from tests.interop.slatedb_databases import Concatenate, Shape, flush, opened, put_all, scanned, until
from tests.paths import REPOSITORY

S = CompactionStatus
PUBLISHED_MIN = 3
PATIENCE_S = 90
"""A busy machine takes its time to start processes and to load kernels."""
Versions = Counter[tuple[bytes, int]]


def joined(_key: bytes, existing: bytes | None, operands: Sequence[bytes]) -> bytes:
    """Fold as the operator of the golden files does, for Shale."""
    return (existing or b"") + b"".join(operands)


@contextmanager
def slatedb_worker(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Return the process of ``slatedb_process`` once its worker runs."""
    root = REPOSITORY
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.interop.compaction.slatedb_worker_process", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env={"PYTHONPATH": f"{root}:{root / 'shared'}:{root / 'services'}"},
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


async def entry_of(harness: Harness, job: Ulid) -> Compaction:
    entry = (await harness.compactions.read_latest()).value.get(job)
    assert entry is not None
    return entry


def published(entry: Compaction) -> list[Ulid]:
    return [sst.id for sub in (entry.ctx.subcompactions if entry.ctx else ()) for sst in sub.output_ssts]


async def only_job(harness: Harness) -> Ulid:
    """Return the only job as soon as it is scheduled."""
    found: list[Ulid] = []

    async def is_scheduled() -> bool:
        stored = await harness.compactions.try_read_latest()
        entries = stored.value.entries if stored is not None else ()
        found[:] = [entry.id for entry in entries if entry.status in (S.SCHEDULED, S.RUNNING)]
        return len(found) == 1

    await until(is_scheduled, seconds=PATIENCE_S)
    return found[0]


async def until_published(harness: Harness, job: Ulid) -> None:
    async def has_outputs() -> bool:
        return len(published(await entry_of(harness, job))) >= PUBLISHED_MIN

    await until(has_outputs, seconds=PATIENCE_S)


async def until_status(harness: Harness, job: Ulid, *statuses: CompactionStatus) -> None:
    async def has_status() -> bool:
        return (await entry_of(harness, job)).status in statuses

    await until(has_status, seconds=PATIENCE_S)


async def everything(harness: Harness, manifest: Manifest) -> Versions:
    """Return key and sequence number of all rows of all SSTs of a manifest, in stored order."""
    reader = SstReader(harness.store, SstPaths.of(harness.root, manifest), BlockCache(1 << 20), harness.env)
    sources = [SstViewsSource(reader, (view,)) for view in manifest.tree.l0]
    sources += [SstViewsSource(reader, run_.ssts) for run_ in manifest.tree.compacted]
    rows: Versions = Counter()
    for source in sources:
        for piece in await drain(source):
            rows.update((piece.key(row), int(piece.seq[row])) for row in range(len(piece)))
    return rows


def of_versioned_keys(rows: Versions) -> Versions:
    return Counter({row: count for row, count in rows.items() if row[0].endswith(b"/versions")})


def splits_a_key(views: Sequence[SstView]) -> bool:
    return any(left.sst.info.last_entry == right.sst.info.first_entry for left, right in pairwise(views))


async def assert_both_read(harness: Harness, expected: dict[bytes, bytes]) -> None:
    async with DbReader.open(ROOT, store=harness.store, env=harness.env, merge_operator=joined) as reader:
        assert {row.key: row.value async for row in reader.scan()} == expected
    async with opened(harness.rust, ROOT, Shape(merge_operator=Concatenate())) as db:
        assert {row[0]: row[1] for row in await scanned(db)} == expected


@pytest.mark.slow
def test_we_go_on_where_its_killed_worker_stopped(tmp_path):
    """Shale's coordinator schedules, SlateDB's worker claims and is killed, Shale's worker resumes inside a key."""

    async def test(harness: Harness) -> None:
        with slatedb_worker(tmp_path) as process:
            before = await harness.manifest()
            compactor = harness.compactor(take_over=True, embedded_worker=False)
            await compactor.start()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(compactor.coordinator.run)
                job = await only_job(harness)
                await until_published(harness, job)
                process.kill()
                kept = published(await entry_of(harness, job))
                await until_status(harness, job, S.SCHEDULED)
                assert published(await entry_of(harness, job))[: len(kept)] == kept
                transforms = Transforms(operator=joined, operator_name="joined")
                executor = Executor(harness.store, ROOT, harness.env, executor_options(), transforms=transforms)
                tasks.start_soon(Worker(harness.manifests, harness.compactions, executor, harness.env, WORKS).run)
                await until_status(harness, job, S.COMPLETED)
                tasks.cancel_scope.cancel()
        after = await harness.manifest()
        (result,) = after.tree.compacted
        assert [view.sst.id for view in result.ssts][: len(kept)] == kept
        assert splits_a_key(result.ssts[: len(kept) + 1]), "otherwise nothing begins inside of a key"
        assert of_versioned_keys(await everything(harness, after)) == of_versioned_keys(
            await everything(harness, before)
        )
        await assert_both_read(harness, versioned())

    run(test, tmp_path)


@pytest.mark.slow
def test_its_worker_serves_our_coordinator(tmp_path):
    """SlateDB's worker claims and executes the job; Shale's coordinator commits the result."""

    async def test(harness: Harness) -> None:
        with slatedb_worker(tmp_path):
            before = await harness.manifest()
            compactor = harness.compactor(take_over=True, embedded_worker=False)
            await compactor.start()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(compactor.coordinator.run)
                await until_status(harness, await only_job(harness), S.COMPLETED)
                tasks.cancel_scope.cancel()
        after = await harness.manifest()
        assert of_versioned_keys(await everything(harness, after)) == of_versioned_keys(
            await everything(harness, before)
        )
        await assert_both_read(harness, versioned())

    run(test, tmp_path)


async def write_l0s(harness: Harness, db: Any) -> None:
    """Write four L0s of keys with many versions among keys with one version."""
    for l0 in range(4):
        for version in range(10):
            batch = [(b"%05d/versions" % number, b"%d.%d" % (l0, version) * 20) for number in range(0, 8000, 100)]
            batch += [
                (b"%05d/once" % number, harness.rng.randbytes(500)) for number in range(l0 * 10 + version, 8000, 40)
            ]
            harness.model.update(batch)
            await put_all(db, batch)
        await flush(db)


@contextmanager
def our_worker(folder: Path, name: str, *settings: str) -> Iterator[Daemon]:
    """Start a Shale worker daemon."""
    quick = ("compactions_poll_interval=100ms", "heartbeat_interval=500ms", "persist_every_sst=true", *settings)
    options = [part for setting in quick for part in ("--set", f"compactor_options.worker.{setting}")]
    with running("shale_compactor.worker", "--url", f"file://{folder}/{ROOT}", *options, log=folder / name) as daemon:
        yield daemon


SLOWLY = (
    'compaction_filters=["tests.integration.soak.slow_filter:Crawling"]',
    "max_sst_size=32KiB",
    "max_subcompactions=1",
    "memory_bytes=512KiB",
)


@pytest.mark.slow
@pytest.mark.parametrize("successor", ["ours", "theirs"])
def test_its_coordinator_takes_the_job_from_our_killed_worker(tmp_path, successor):
    """SlateDB schedules, a Shale worker claims and is killed; then another Shale worker or SlateDB's own resumes."""

    async def test(harness: Harness) -> None:
        async with opened(harness.rust, ROOT, Shape({"compactor_options": {**RUST_COMPACTS, "worker": None}})) as db:
            await put_all(db, [(b"first", b"row")])
            harness.model[b"first"] = b"row"
            snapshot = await db.snapshot()
            await write_l0s(harness, db)
            before = await harness.manifest()
            job = await only_job(harness)
            with our_worker(tmp_path, "killed", *SLOWLY) as killed:
                await until_published(harness, job)
                killed.process.kill()
                killed.process.wait()
            kept = published(await entry_of(harness, job))
            if successor == "ours":
                with our_worker(tmp_path, "successor"):
                    await until_status(harness, job, S.COMPLETED)
            del snapshot
        if successor == "theirs":
            async with opened(harness.rust, ROOT, Shape({"compactor_options": RUST_COMPACTS})):
                await until_status(harness, job, S.COMPLETED)
        after = await harness.manifest()
        (result,) = after.tree.compacted
        assert [view.sst.id for view in result.ssts][: len(kept)] == kept
        assert len(result.ssts) > len(kept)
        assert await everything(harness, after) == await everything(harness, before)
        await harness.assert_all_read_everything()

    run(test, tmp_path)


POISONED = ('compaction_filters=["tests.interop.compaction.raising_filter:Raising"]',)


@pytest.mark.slow
def test_a_job_that_our_worker_ends_is_read_and_compacted_by_slatedb(tmp_path):
    """Its coordinator writes the file again, and drops what it does not know; the record keeps the attempt."""

    async def test(harness: Harness) -> None:
        async with opened(harness.rust, ROOT, Shape({"compactor_options": {**RUST_COMPACTS, "worker": None}})) as db:
            await write_l0s(harness, db)
            job = await only_job(harness)
            with our_worker(tmp_path, "poisoned", *POISONED):
                await until_status(harness, job, S.FAILED)
        async with opened(harness.rust, ROOT, Shape({"compactor_options": RUST_COMPACTS})):
            await until(harness.settled, seconds=PATIENCE_S)
        assert not (await harness.manifest()).tree.l0
        record = await harness.compactions.records.read(job)
        assert record is not None
        assert (record.status, record.attempts_count) == (S.FAILED, 1)
        assert "ZeroDivisionError" in (record.error or "")
        await harness.assert_all_read_everything()

    run(test, tmp_path)


async def until_idle(operator: SlowConcatenate) -> None:
    """Wait until no merge has run for many times the duration of one merge."""
    calls = -1
    while calls < operator.calls:
        calls = operator.calls
        await anyio.sleep(20 * SECONDS_PER_MERGE)


@pytest.mark.soak
def test_a_cancel_that_its_coordinator_ignores_costs_work_and_no_row(tmp_path):
    """Shale's worker stops, SlateDB's coordinator restores the job, and every version exists once."""
    small = {**RUST_COMPACTS["worker"], "max_sst_size": 8 * 1024, "max_subcompactions": 1}

    async def test(harness: Harness) -> None:
        operator = SlowConcatenate()
        shape = Shape({"compactor_options": {**RUST_COMPACTS, "worker": small}}, merge_operator=operator)
        async with opened(harness.rust, ROOT, shape) as db:
            snapshot = await write(db)
            operator.is_slow = True
            before = await harness.manifest()
            assert len(before.tree.l0) == 4
            job = await only_job(harness)
            await until_published(harness, job)
            running_entry = await entry_of(harness, job)
            await (await harness.compactions.load()).apply(lambda current: with_cancelled(current.value, job))
            await until_idle(operator)
            operator.is_slow = False
            # Whatever makes the coordinator write, here by a request that breaks rule V9.
            await submit(harness, TieredSpec(l0_view_ids=(before.tree.l0[0].id,), destination=RunId(9)))
            await until_status(harness, job, S.RUNNING)
            assert (await entry_of(harness, job)).worker == running_entry.worker
            await until(harness.settled, seconds=PATIENCE_S)
            after = await harness.manifest()
            assert of_versioned_keys(await everything(harness, after)) == of_versioned_keys(
                await everything(harness, before)
            )
            del snapshot
        await assert_both_read(harness, versioned())

    run(test, tmp_path)
