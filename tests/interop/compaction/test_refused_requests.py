"""Two requests with which SlateDB 0.17 loses rows, and Shale's responses (docs/reference/protocol.md 6.5, V7 and
V12).

The tests of SlateDB document the released package: once it refuses these requests, they fail, and our rules may be
compared with its own again.  Nothing but the wheel's own administration is used to submit.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from slatedb import uniffi as slate

from shale.compaction.cancel import with_cancelled
from shale.types import CompactionStatus, Tree, Ulid
from shale_compactor.compactor import Compactor
from shale_compactor.execution.executor import Executor
from shale_compactor.planning.admission import admit_submitted
from shale_compactor.worker.options import WorkerOptions
from shale_compactor.worker.worker import Worker
from tests.interop.compaction.harness import CALM, ROOT, Harness, executor_options, run, status_of
from tests.interop.slatedb_databases import Shape, flush, opened, put_all, until

S = CompactionStatus
COORDINATES = {**CALM, "worker": None}


def l0(view_id: object) -> Any:
    return slate.SourceId.SST_VIEW(str(view_id))


def sorted_run(number: int) -> Any:
    return slate.SourceId.SORTED_RUN(number)


def tiered(sources: list[Any], destination: int) -> Any:
    return slate.CompactionSpec.TIERED(segment=b"", sources=sources, destination=destination)


async def submitted(harness: Harness, spec: Any) -> Ulid:
    """Submit a job with SlateDB's own tool, which validates nothing; return its id."""
    entry = await slate.AdminBuilder(ROOT, harness.rust).build().submit_compaction(spec)
    return next(e.id for e in (await harness.compactions.read_latest()).value.entries if str(e.id) == entry.id)


async def write_l0s(harness: Harness, db: Any, *names: str) -> list[list[bytes]]:
    """Write an L0 with its own keys per name; return the keys of each, oldest first."""
    written = []
    for name in names:
        rows = [(b"%s/%03d" % (name.encode(), key), harness.rng.randbytes(20)) for key in range(50)]
        harness.model.update(rows)
        await put_all(db, rows)
        await flush(db)
        written.append([key for key, _ in rows])
    return written


async def until_finished(harness: Harness, *jobs: Ulid) -> None:
    async def finished() -> bool:
        entries = (await harness.compactions.read_latest()).value
        return all((entry := entries.get(job)) is None or entry.status.is_finished for job in jobs)

    await until(finished)


async def tree_of(harness: Harness) -> Tree:
    return (await harness.manifest()).tree


def test_slatedb_loses_what_is_older_than_a_request_without_the_oldest_l0(tmp_path):
    """V7: it completes ``[L0_3, L0_2] -> 7``, and the rows of L0_1 are below the watermark."""

    async def test(harness: Harness) -> None:
        async with opened(harness.rust, ROOT, Shape({"compactor_options": CALM})) as db:
            oldest, *_ = await write_l0s(harness, db, "oldest", "middle", "newest")
            newest_first = (await tree_of(harness)).l0
            job = await submitted(harness, tiered([l0(view.id) for view in newest_first[:2]], 7))
            await until_finished(harness, job)
            assert await status_of(harness, job) is S.COMPLETED
            await write_l0s(harness, db, "later")  # the writer merges what the coordinator has stored
        for key in oldest:
            del harness.model[key]
        await harness.assert_all_read_everything()

    run(test, tmp_path)


def test_slatedb_loses_a_run_by_two_requests_for_one_destination(tmp_path):
    """V12: ``[SR1, SR0] -> 0`` and ``[SR0] -> 0`` are both scheduled; the second result replaces the first."""

    async def test(harness: Harness) -> None:
        async with opened(harness.rust, ROOT, Shape({"compactor_options": COORDINATES})) as db:
            _, newer = await two_runs(harness, db)
            jobs = [
                await submitted(harness, tiered([sorted_run(1), sorted_run(0)], 0)),
                await submitted(harness, tiered([sorted_run(0)], 0)),
            ]

            async def both_scheduled() -> bool:
                return [await status_of(harness, job) for job in jobs] == [S.SCHEDULED, S.SCHEDULED]

            await until(both_scheduled)
            claimed = [(one, await one.claim()) for one in (worker(harness), worker(harness))]
            for one, own in claimed:
                for job in own:
                    await one.execute(job)
            await until_finished(harness, *jobs)
            await write_l0s(harness, db, "later")
        for key in newer:
            del harness.model[key]
        await harness.assert_all_read_everything()

    run(test, tmp_path)


def test_our_coordinator_refuses_a_request_without_the_oldest_l0(tmp_path):
    """V7, submitted with SlateDB's tool, whose writes Shale's coordinator cannot prevent."""

    async def test(harness: Harness) -> None:
        async with opened(harness.rust, ROOT, Shape()) as db:
            await write_l0s(harness, db, "oldest", "middle", "newest")
            compactor = await coordinating(harness)
            newest_first = (await tree_of(harness)).l0
            job = await submitted(harness, tiered([l0(view.id) for view in newest_first[:2]], 7))
            assert await refused(harness) == {job: "V7"}
            await compactor.coordinator.run_round()
            assert await status_of(harness, job) is S.FAILED
            assert (await tree_of(harness)).l0 == newest_first
            await write_l0s(harness, db, "later")
        await harness.assert_all_read_everything()

    run(test, tmp_path)


def test_our_coordinator_refuses_the_second_of_two_requests_for_one_destination(tmp_path):
    """V12: the first is executed, and no row is missing."""

    async def test(harness: Harness) -> None:
        async with opened(harness.rust, ROOT, Shape()) as db:
            compactor = await coordinating(harness)
            await two_runs(harness, db, compactor.coordinator.run_round)
            jobs = [
                await submitted(harness, tiered([sorted_run(1), sorted_run(0)], 0)),
                await submitted(harness, tiered([sorted_run(0)], 0)),
            ]
            assert await refused(harness) == {jobs[1]: "V12"}
            await compactor.coordinator.run_round()
            assert [await status_of(harness, job) for job in jobs] == [S.SCHEDULED, S.FAILED]
            await work_off(harness, jobs[0], compactor.coordinator.run_round)
            assert [run_.id for run_ in (await tree_of(harness)).compacted] == [0]
            await write_l0s(harness, db, "later")
        await harness.assert_all_read_everything()

    run(test, tmp_path)


def test_a_cancelled_job_comes_back_under_its_coordinator(tmp_path):
    """SlateDB ignores the cancellation and writes its own copy back: work is wasted, but no row is lost."""

    async def test(harness: Harness) -> None:
        async with opened(harness.rust, ROOT, Shape({"compactor_options": COORDINATES})) as db:
            await write_l0s(harness, db, "one", "two")
            newest_first = (await tree_of(harness)).l0
            job = await submitted(harness, tiered([l0(view.id) for view in newest_first], 0))

            async def is_scheduled() -> bool:
                return await status_of(harness, job) is S.SCHEDULED

            await until(is_scheduled)
            stopped = worker(harness)
            (claimed,) = await stopped.claim()
            await cancel(harness, job)
            await stopped.client.heartbeat()
            assert claimed.scope.cancel_called, "our worker stops what was cancelled"
            assert not stopped.jobs
            await submitted(harness, tiered([l0(newest_first[0].id)], 9))  # whatever makes the coordinator write
            await until(is_scheduled)
            await work_off(harness, job)
            await write_l0s(harness, db, "later")
        await harness.assert_all_read_everything()

    run(test, tmp_path)


async def coordinating(harness: Harness) -> Compactor:
    """Start Shale's coordinator; the test runs its rounds."""
    compactor = harness.compactor(take_over=True, embedded_worker=False)
    await compactor.start()
    return compactor


async def refused(harness: Harness) -> dict[Ulid, str]:
    """Return the jobs that Shale's coordinator fails now, each with its rule."""
    stored = (await harness.compactions.read_latest()).value
    step = admit_submitted(await harness.manifest(), stored, trivial_moves=False)
    return {rejected.entry.id: rejected.rule for rejected in step.rejected}


async def cancel(harness: Harness, job: Ulid) -> None:
    """Write what ``shale compaction cancel`` writes."""
    await (await harness.compactions.load()).apply(lambda current: with_cancelled(current.value, job))


def worker(harness: Harness) -> Worker:
    """Start a Shale worker that takes one job at a time; a worker of SlateDB that claims both panics."""
    executor = Executor(harness.store, ROOT, harness.env, executor_options())
    return Worker(
        harness.manifests, harness.compactions, executor, harness.env, WorkerOptions(max_concurrent_compactions=1)
    )


async def wait_a_little() -> None:
    """Wait for some rounds of SlateDB's coordinator, which has no trigger."""
    await anyio.sleep(0.02)


Round = Callable[[], Awaitable[None]]


async def two_runs(harness: Harness, db: Any, tick: Round = wait_a_little) -> tuple[list[bytes], list[bytes]]:
    """Create runs 0 and 1 from one L0 each with a Shale worker; return their keys."""
    keys = []
    for number in range(2):
        keys += await write_l0s(harness, db, f"run{number}")
        (view,) = (await tree_of(harness)).l0
        await work_off(harness, await submitted(harness, tiered([l0(view.id)], number)), tick)
    assert [run_.id for run_ in (await tree_of(harness)).compacted] == [1, 0]
    return keys[0], keys[1]


async def work_off(harness: Harness, job: Ulid, tick: Round = wait_a_little) -> None:
    """Let a Shale worker execute one job of the active coordinator."""
    ours = worker(harness)

    async def scheduled() -> bool:
        await tick()
        return await status_of(harness, job) is S.SCHEDULED

    async def completed() -> bool:
        await tick()
        # Of all finished entries only the one with the greatest id is kept.
        return await status_of(harness, job) in (S.COMPLETED, None)

    await until(scheduled)
    (claimed,) = await ours.claim()
    await ours.execute(claimed)
    await until(completed)


def test_our_coordinator_refuses_whatever_else_slatedbs_tool_lets_through(tmp_path):
    """V1 to V4 and V10: each becomes one Failed entry, and the file with all of them stays readable."""

    async def test(harness: Harness) -> None:
        async with opened(harness.rust, ROOT, Shape()) as db:
            await write_l0s(harness, db, "oldest", "newest")
            compactor = await coordinating(harness)
            newest, oldest = (view.id for view in (await tree_of(harness)).l0)
            drain = slate.CompactionSpec.DRAIN_SEGMENT
            wanted = {
                await submitted(harness, tiered([], 7)): "V1",
                await submitted(harness, drain(segment=b"", sources=[l0(newest), l0(oldest)])): "V2",
                await submitted(harness, drain(segment=b"gone", sources=[l0(oldest)])): "V3",
                await submitted(harness, tiered([sorted_run(3)], 3)): "V4",
                await submitted(harness, tiered([l0(oldest), l0(newest)], 7)): "V7",
                await submitted(harness, tiered([l0(oldest), l0(oldest)], 7)): "V7",
            }
            assert await refused(harness) == wanted
            await compactor.coordinator.run_round()
            assert {await status_of(harness, job) for job in wanted} <= {S.FAILED, None}
        await harness.assert_all_read_everything()

    run(test, tmp_path)
