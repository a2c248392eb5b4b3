"""A Shale compactor and SlateDB 0.17 on one database: I1, I2, I7, I8 and I12 of docs/reference/protocol.md 14.6."""

import anyio
import pytest
from slatedb import uniffi as slate

from shale.engine.db import Db
from shale.engine.options import FlushType
from shale.sst.options import SstOptions
from shale.types import CompactionStatus, Compression, RunId, TieredSpec
from shale_compactor.coordinator.live_coordinator import LiveCoordinator
from shale_compactor.execution.executor import Executor
from shale_compactor.execution.options import ExecutorOptions
from shale_compactor.worker.worker import Worker
from tests.integration.daemons.daemon_process import ENDED_S, running
from tests.interop.compaction.harness import (
    ROOT,
    RUST_COMPACTS,
    WORKS,
    Harness,
    executor_options,
    run,
    status_of,
    submit,
)
from tests.interop.slatedb_databases import Shape, flush, opened, put_all, scanned, until

S = CompactionStatus


@pytest.mark.slow
@pytest.mark.parametrize("compression", list(Compression))
def test_slatedb_writes_and_we_compact(tmp_path, compression):
    """I1: SlateDB writes with every codec while Shale compacts, and reads every row afterwards."""

    async def test(harness: Harness) -> None:
        async with opened(harness.rust, ROOT, Shape()) as db:
            async with harness.compacting(compression):
                await harness.flush_l0s(db, 12)
                await until(harness.settled)
                assert {row[0]: row[1] for row in await scanned(db)} == harness.model
            await put_all(db, harness.next_rows())
        manifest = await harness.manifest()
        assert manifest.tree.compacted
        assert any(len(run.ssts) > 1 for run in manifest.tree.compacted), "outputs were rolled over"
        await harness.assert_rust_reads_everything()

    run(test, tmp_path)


@pytest.mark.slow
def test_both_compactors_take_turns(tmp_path):
    """I2: ten rounds, Shale's writer and SlateDB's compactor, then SlateDB's writer and Shale's compactor."""

    async def test(harness: Harness) -> None:
        for round_ in range(10):
            rows = [harness.next_rows(200) for _ in range(5)]
            if round_ % 2:
                async with opened(harness.rust, ROOT, Shape({"compactor_options": RUST_COMPACTS})) as db:
                    for batch in rows:
                        await put_all(db, batch)
                        await flush(db)
                    await until(harness.settled)
            else:
                async with Db.open(ROOT, store=harness.store, env=harness.env) as db:
                    async with harness.compacting():
                        for batch in rows:
                            async with db.batch() as b:
                                for key, value in batch:
                                    b.delete(key) if value is None else b.put(key, value)
                            await db.flush(FlushType.MEMTABLE)
                        await until(harness.settled)
                    assert {row.key: row.value async for row in db.scan()} == harness.model
        await harness.assert_rust_reads_everything()
        stored = (await harness.compactions.read_latest()).value
        assert len([entry for entry in stored.entries if not entry.is_active]) == 1

    run(test, tmp_path)


def test_its_coordinator_runs_what_we_submit(tmp_path):
    """I7: SlateDB's coordinator runs what Shale submits."""

    async def test(harness: Harness) -> None:
        calm = {**RUST_COMPACTS, "scheduler_options": {"min_compaction_sources": "50", "max_compaction_sources": "50"}}
        async with opened(harness.rust, ROOT, Shape({"compactor_options": calm})) as db:
            await harness.flush_l0s(db, 3)
            tree = (await harness.manifest()).tree
            job = await submit(
                harness, TieredSpec(l0_view_ids=tuple(view.id for view in tree.l0), destination=RunId(0))
            )

            async def is_done() -> bool:
                return await status_of(harness, job) is S.COMPLETED

            await until(is_done)
            assert {row[0]: row[1] for row in await scanned(db)} == harness.model

    run(test, tmp_path)


@pytest.mark.slow
def test_our_worker_serves_its_coordinator(tmp_path):
    """I8: claims, results, and the reclaim of a job whose worker died."""

    async def test(harness: Harness) -> None:
        alone = {**RUST_COMPACTS, "worker": None}
        executor = Executor(harness.store, ROOT, harness.env, executor_options())

        def worker() -> Worker:
            return Worker(harness.manifests, harness.compactions, executor, harness.env, WORKS)

        async with opened(harness.rust, ROOT, Shape({"compactor_options": alone})) as db:
            await harness.flush_l0s(db, 4)

            async def is_scheduled() -> bool:
                stored = await harness.compactions.try_read_latest()
                return stored is not None and any(entry.status is S.SCHEDULED for entry in stored.value.entries)

            await until(is_scheduled)
            dead = worker()
            (lost,) = await dead.claim()
            assert await status_of(harness, lost.plan.id) is S.RUNNING
            await until(is_scheduled)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(worker().run)

                async def is_done() -> bool:
                    return await status_of(harness, lost.plan.id) is S.COMPLETED

                await until(is_done)
                assert {row[0]: row[1] for row in await scanned(db)} == harness.model
                tasks.cancel_scope.cancel()

    run(test, tmp_path)


@pytest.mark.slow
def test_its_worker_resumes_after_what_ours_published(tmp_path):
    """Shale's worker dies with two SSTs in the job's context; SlateDB reclaims the job and resumes from them."""

    async def test(harness: Harness) -> None:
        async with opened(harness.rust, ROOT, Shape()) as db:
            await harness.flush_l0s(db, 4, row_count=700)
        compactor = harness.compactor(take_over=True, embedded_worker=False)
        await compactor.start()
        await compactor.coordinator.run_round()
        options = ExecutorOptions(
            sst=SstOptions(block_size_bytes=512), max_sst_size_bytes=8 * 1024, max_subcompactions=1
        )
        executor = Executor(harness.store, ROOT, harness.env, options)
        dead = Worker(harness.manifests, harness.compactions, executor, harness.env, WORKS)
        (job,) = await dead.claim()
        with anyio.CancelScope() as scope:
            job.progress.on_sst = lambda _: scope.cancel() if len(job.progress.outputs()) == 2 else None
            await executor.run(job.plan, job.progress)
        published = [sst.id for sst in job.progress.outputs()]
        await dead.client.heartbeat()

        async with opened(harness.rust, ROOT, Shape({"compactor_options": RUST_COMPACTS})) as db:

            async def is_done() -> bool:
                return await status_of(harness, job.plan.id) is S.COMPLETED

            await until(is_done)
            assert {row[0]: row[1] for row in await scanned(db)} == harness.model
        (run_,) = (await harness.manifest()).tree.compacted
        assert [view.sst.id for view in run_.ssts][: len(published)] == published
        assert len(run_.ssts) > len(published)

    run(test, tmp_path)


def test_taking_over_closes_a_writer_with_its_own_coordinator(tmp_path):
    """I12: Shale refuses to take over from a live coordinator without the option that allows it."""

    async def test(harness: Harness) -> None:
        async with opened(harness.rust, ROOT, Shape({"compactor_options": RUST_COMPACTS})) as db:
            await harness.flush_l0s(db, 4)
            await until(harness.settled)
            with pytest.raises(LiveCoordinator):
                await harness.compactor().start()
            async with harness.compacting():
                await until(lambda: is_fenced(db))
        await harness.assert_rust_reads_everything()

    run(test, tmp_path)


@pytest.mark.slow
def test_our_daemon_beside_a_writer_with_its_own_coordinator(tmp_path):
    """I12 in a daemon: exit code 75 with a remedy, or the whole ``Db`` is fenced."""

    async def test(harness: Harness) -> None:
        async with opened(harness.rust, ROOT, Shape({"compactor_options": RUST_COMPACTS})) as db:
            await harness.flush_l0s(db, 4)
            await until(harness.settled)
            url = f"file://{tmp_path}/{ROOT}"
            with running("shale_compactor", "--url", url, log=tmp_path / "shy") as shy:
                assert shy.process.wait(ENDED_S) == 75
                assert "--take-over" in shy.log.read_text()
            assert {row[0]: row[1] for row in await scanned(db)} == harness.model
            with running("shale_compactor", "--url", url, "--take-over", log=tmp_path / "bold") as bold:
                bold.wait_for("daemon.ready")
                await until(lambda: is_fenced(db))
                assert bold.stop() == 0
        await harness.assert_all_read_everything()

    run(test, tmp_path)


async def is_fenced(db):
    try:
        await db.get(b"k")
    except slate.Error.Closed as error:
        return error.reason is slate.CloseReason.FENCED
    return False


def test_a_database_of_both_is_read_alike_by_both(tmp_path):
    """SlateDB decodes compactions that Shale wrote with the same fields."""

    async def test(harness: Harness) -> None:
        async with opened(harness.rust, ROOT, Shape()) as db:
            await harness.flush_l0s(db, 4)
            async with harness.compacting():
                await until(harness.settled)
        admin = slate.AdminBuilder(ROOT, harness.rust).build()
        theirs = await admin.read_compactions(None)
        ours = (await harness.compactions.read_latest()).value
        assert theirs.compactor_epoch == ours.compactor_epoch
        assert [str(compaction.id) for compaction in theirs.recent_compactions] == [str(e.id) for e in ours.entries]

    run(test, tmp_path)
