"""Our compactor and SlateDB 0.17 on one database: I1, I2, I7, I8 and I12 of docs/protocol.md 14.6."""

import anyio
import pytest
from slatedb import uniffi as slate

from shale.engine.db import Db
from shale.engine.options import FlushType
from shale.sst.options import SstOptions
from shale.types import CompactionStatus, Compression, RunId, TieredSpec
from shale_compactor.coordinator.takeover import LiveCoordinator
from shale_compactor.execution.executor import Executor
from shale_compactor.execution.options import ExecutorOptions
from shale_compactor.worker.worker import Worker
from tests.integration.daemons.running import ENDED_S, running
from tests.interop.compaction_house import ROOT, RUST_COMPACTS, WORKS, House, executor_options, run, status_of, submit
from tests.interop.slatedb_writes import Shape, flush, opened, put_all, scanned, until

S = CompactionStatus


@pytest.mark.parametrize("compression", list(Compression))
def test_slatedb_writes_and_we_compact(tmp_path, compression):
    """I1: it writes on while we compact, with every codec, and reads every row afterwards."""

    async def test(house: House) -> None:
        async with opened(house.rust, ROOT, Shape()) as db:
            async with house.compacting(compression):
                for _ in range(12):
                    await put_all(db, house.next_rows())
                    await flush(db)
                await until(house.settled)
                assert {row[0]: row[1] for row in await scanned(db)} == house.model
            await put_all(db, house.next_rows())
        manifest = await house.manifest()
        assert manifest.tree.compacted
        assert any(len(run.ssts) > 1 for run in manifest.tree.compacted), "outputs were rolled over"
        await house.assert_rust_reads_everything()

    run(test, tmp_path)


def test_both_compactors_take_turns(tmp_path):
    """I2: ten rounds, our writer and its compactor, then its writer and our compactor."""

    async def test(house: House) -> None:
        for round_ in range(10):
            rows = [house.next_rows(200) for _ in range(5)]
            if round_ % 2:
                async with opened(house.rust, ROOT, Shape({"compactor_options": RUST_COMPACTS})) as db:
                    for batch in rows:
                        await put_all(db, batch)
                        await flush(db)
                    await until(house.settled)
            else:
                async with Db.open(ROOT, store=house.store, env=house.env) as db:
                    async with house.compacting():
                        for batch in rows:
                            async with db.batch() as b:
                                for key, value in batch:
                                    b.delete(key) if value is None else b.put(key, value)
                            await db.flush(FlushType.MEMTABLE)
                        await until(house.settled)
                    assert {row.key: row.value async for row in db.scan()} == house.model
        await house.assert_rust_reads_everything()
        stored = (await house.compactions.read_latest()).value
        assert len([entry for entry in stored.entries if not entry.is_active]) == 1

    run(test, tmp_path)


def test_its_coordinator_runs_what_we_submit(tmp_path):
    """I7."""

    async def test(house: House) -> None:
        calm = {**RUST_COMPACTS, "scheduler_options": {"min_compaction_sources": "50", "max_compaction_sources": "50"}}
        async with opened(house.rust, ROOT, Shape({"compactor_options": calm})) as db:
            for _ in range(3):
                await put_all(db, house.next_rows())
                await flush(db)
            tree = (await house.manifest()).tree
            job = await submit(house, TieredSpec(l0_view_ids=tuple(view.id for view in tree.l0), destination=RunId(0)))

            async def is_done() -> bool:
                return await status_of(house, job) is S.COMPLETED

            await until(is_done)
            assert {row[0]: row[1] for row in await scanned(db)} == house.model

    run(test, tmp_path)


def test_our_worker_serves_its_coordinator(tmp_path):
    """I8: claims, results, and the reclaim of a job whose worker died."""

    async def test(house: House) -> None:
        alone = {**RUST_COMPACTS, "worker": None}
        executor = Executor(house.store, ROOT, house.env, executor_options())

        def worker() -> Worker:
            return Worker(house.manifests, house.compactions, executor, house.env, WORKS)

        async with opened(house.rust, ROOT, Shape({"compactor_options": alone})) as db:
            for _ in range(4):
                await put_all(db, house.next_rows())
                await flush(db)

            async def is_scheduled() -> bool:
                stored = await house.compactions.try_read_latest()
                return stored is not None and any(entry.status is S.SCHEDULED for entry in stored.value.entries)

            await until(is_scheduled)
            dead = worker()
            (lost,) = await dead.claim()
            assert await status_of(house, lost.plan.id) is S.RUNNING
            await until(is_scheduled)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(worker().run)

                async def is_done() -> bool:
                    return await status_of(house, lost.plan.id) is S.COMPLETED

                await until(is_done)
                assert {row[0]: row[1] for row in await scanned(db)} == house.model
                tasks.cancel_scope.cancel()

    run(test, tmp_path)


def test_its_worker_goes_on_behind_what_ours_published(tmp_path):
    """Our worker dies with two SSTs in the job's context; SlateDB reclaims the job and resumes from them."""

    async def test(house: House) -> None:
        async with opened(house.rust, ROOT, Shape()) as db:
            for _ in range(4):
                await put_all(db, house.next_rows(700))
                await flush(db)
        compactor = house.compactor(take_over=True, embedded_worker=False)
        await compactor.start()
        await compactor.coordinator.tick()
        options = ExecutorOptions(
            sst=SstOptions(block_size_bytes=512), max_sst_size_bytes=8 * 1024, max_subcompactions=1
        )
        executor = Executor(house.store, ROOT, house.env, options)
        dead = Worker(house.manifests, house.compactions, executor, house.env, WORKS)
        (job,) = await dead.claim()
        with anyio.CancelScope() as scope:
            job.progress._on_sst = lambda _: scope.cancel() if len(job.progress.outputs()) == 2 else None
            await executor.run(job.plan, job.progress)
        published = [sst.id for sst in job.progress.outputs()]
        await dead._ledger.beat()

        async with opened(house.rust, ROOT, Shape({"compactor_options": RUST_COMPACTS})) as db:

            async def is_done() -> bool:
                return await status_of(house, job.plan.id) is S.COMPLETED

            await until(is_done)
            assert {row[0]: row[1] for row in await scanned(db)} == house.model
        (run_,) = (await house.manifest()).tree.compacted
        assert [view.sst.id for view in run_.ssts][: len(published)] == published
        assert len(run_.ssts) > len(published)

    run(test, tmp_path)


def test_taking_over_closes_a_writer_with_its_own_coordinator(tmp_path):
    """I12: so we refuse while it is alive, unless told otherwise."""

    async def test(house: House) -> None:
        async with opened(house.rust, ROOT, Shape({"compactor_options": RUST_COMPACTS})) as db:
            for _ in range(4):
                await put_all(db, house.next_rows())
                await flush(db)
            await until(house.settled)
            with pytest.raises(LiveCoordinator):
                await house.compactor().start()
            async with house.compacting():
                await until(lambda: is_fenced(db))
        await house.assert_rust_reads_everything()

    run(test, tmp_path)


def test_our_daemon_beside_a_writer_with_its_own_coordinator(tmp_path):
    """I12 as an operator meets it: exit code 75 and the way out, or the whole ``Db`` is fenced."""

    async def test(house: House) -> None:
        async with opened(house.rust, ROOT, Shape({"compactor_options": RUST_COMPACTS})) as db:
            for _ in range(4):
                await put_all(db, house.next_rows())
                await flush(db)
            await until(house.settled)
            url = f"file://{tmp_path}/{ROOT}"
            with running("shale_compactor", "--url", url, log=tmp_path / "shy") as shy:
                assert shy.process.wait(ENDED_S) == 75
                assert "--take-over" in shy.log.read_text()
            assert {row[0]: row[1] for row in await scanned(db)} == house.model
            with running("shale_compactor", "--url", url, "--take-over", log=tmp_path / "bold") as bold:
                bold.wait_for("daemon.ready")
                await until(lambda: is_fenced(db))
                assert bold.stop() == 0
        await house.assert_all_read_everything()

    run(test, tmp_path)


async def is_fenced(db):
    try:
        await db.get(b"k")
    except slate.Error.Closed as error:
        return error.reason is slate.CloseReason.FENCED
    return False


def test_a_database_of_both_is_read_alike_by_both(tmp_path):
    """Compactions that we wrote decode in SlateDB with the same fields."""

    async def test(house: House) -> None:
        async with opened(house.rust, ROOT, Shape()) as db:
            for _ in range(4):
                await put_all(db, house.next_rows())
                await flush(db)
            async with house.compacting():
                await until(house.settled)
        admin = slate.AdminBuilder(ROOT, house.rust).build()
        theirs = await admin.read_compactions(None)
        ours = (await house.compactions.read_latest()).value
        assert theirs.compactor_epoch == ours.compactor_epoch
        assert [str(compaction.id) for compaction in theirs.recent_compactions] == [str(e.id) for e in ours.entries]

    run(test, tmp_path)
