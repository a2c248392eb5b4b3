"""Two requests with which SlateDB 0.17 loses rows, and what we say to them (docs/protocol.md 6.5, V7 and V12).

The tests of SlateDB document the released package: once it refuses these requests, they fail, and our rules may be
compared with its own again.  Nothing but the wheel's own administration is used to submit.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from slatedb import uniffi as slate

from shale.compaction.cancel import with_cancelled
from shale.types import CompactionStatus, Tree, Ulid
from shale_compactor.execution.executor import Executor
from shale_compactor.process import Compactor
from shale_compactor.states.admission import admit_submitted
from shale_compactor.worker.options import WorkerOptions
from shale_compactor.worker.worker import Worker
from tests.interop.compaction_house import CALM, ROOT, House, executor_options, run, status_of
from tests.interop.slatedb_writes import Shape, flush, opened, put_all, until

S = CompactionStatus
COORDINATES = {**CALM, "worker": None}


def l0(view_id: object) -> Any:
    return slate.SourceId.SST_VIEW(str(view_id))


def sorted_run(number: int) -> Any:
    return slate.SourceId.SORTED_RUN(number)


def tiered(sources: list[Any], destination: int) -> Any:
    return slate.CompactionSpec.TIERED(segment=b"", sources=sources, destination=destination)


async def submitted(house: House, spec: Any) -> Ulid:
    """The id of a job that was submitted with SlateDB's own tool, which lets everything through."""
    entry = await slate.AdminBuilder(ROOT, house.rust).build().submit_compaction(spec)
    return next(e.id for e in (await house.compactions.read_latest()).value.entries if str(e.id) == entry.id)


async def write_l0s(house: House, db: Any, *names: str) -> list[list[bytes]]:
    """An L0 per name, with keys of its own; returns the keys of each, oldest first."""
    written = []
    for name in names:
        rows = [(b"%s/%03d" % (name.encode(), key), house.rng.randbytes(20)) for key in range(50)]
        house.model.update(rows)
        await put_all(db, rows)
        await flush(db)
        written.append([key for key, _ in rows])
    return written


async def until_finished(house: House, *jobs: Ulid) -> None:
    async def finished() -> bool:
        entries = (await house.compactions.read_latest()).value
        return all((entry := entries.get(job)) is None or entry.status.is_finished for job in jobs)

    await until(finished)


async def tree_of(house: House) -> Tree:
    return (await house.manifest()).tree


def test_slatedb_loses_what_is_older_than_a_request_without_the_oldest_l0(tmp_path):
    """V7: it completes ``[L0_3, L0_2] -> 7``, and the rows of L0_1 are behind the watermark."""

    async def test(house: House) -> None:
        async with opened(house.rust, ROOT, Shape({"compactor_options": CALM})) as db:
            oldest, *_ = await write_l0s(house, db, "oldest", "middle", "newest")
            newest_first = (await tree_of(house)).l0
            job = await submitted(house, tiered([l0(view.id) for view in newest_first[:2]], 7))
            await until_finished(house, job)
            assert await status_of(house, job) is S.COMPLETED
            await write_l0s(house, db, "later")  # the writer merges what the coordinator has stored
        for key in oldest:
            del house.model[key]
        await house.assert_all_read_everything()

    run(test, tmp_path)


def test_slatedb_loses_a_run_by_two_requests_for_one_destination(tmp_path):
    """V12: ``[SR1, SR0] -> 0`` and ``[SR0] -> 0`` are both scheduled; the second result replaces the first."""

    async def test(house: House) -> None:
        async with opened(house.rust, ROOT, Shape({"compactor_options": COORDINATES})) as db:
            _, newer = await two_runs(house, db)
            jobs = [
                await submitted(house, tiered([sorted_run(1), sorted_run(0)], 0)),
                await submitted(house, tiered([sorted_run(0)], 0)),
            ]

            async def both_scheduled() -> bool:
                return [await status_of(house, job) for job in jobs] == [S.SCHEDULED, S.SCHEDULED]

            await until(both_scheduled)
            claimed = [(one, await one.claim()) for one in (worker(house), worker(house))]
            for one, own in claimed:
                for job in own:
                    await one._execute(job)
            await until_finished(house, *jobs)
            await write_l0s(house, db, "later")
        for key in newer:
            del house.model[key]
        await house.assert_all_read_everything()

    run(test, tmp_path)


def test_our_coordinator_refuses_a_request_without_the_oldest_l0(tmp_path):
    """V7, submitted with SlateDB's tool, which our coordinator cannot prevent."""

    async def test(house: House) -> None:
        async with opened(house.rust, ROOT, Shape()) as db:
            await write_l0s(house, db, "oldest", "middle", "newest")
            compactor = await coordinating(house)
            newest_first = (await tree_of(house)).l0
            job = await submitted(house, tiered([l0(view.id) for view in newest_first[:2]], 7))
            assert await refused(house) == {job: "V7"}
            await compactor.coordinator.tick()
            assert await status_of(house, job) is S.FAILED
            assert (await tree_of(house)).l0 == newest_first
            await write_l0s(house, db, "later")
        await house.assert_all_read_everything()

    run(test, tmp_path)


def test_our_coordinator_refuses_the_second_of_two_requests_for_one_destination(tmp_path):
    """V12: the first is carried out, and not a row is missing."""

    async def test(house: House) -> None:
        async with opened(house.rust, ROOT, Shape()) as db:
            compactor = await coordinating(house)
            await two_runs(house, db, compactor.coordinator.tick)
            jobs = [
                await submitted(house, tiered([sorted_run(1), sorted_run(0)], 0)),
                await submitted(house, tiered([sorted_run(0)], 0)),
            ]
            assert await refused(house) == {jobs[1]: "V12"}
            await compactor.coordinator.tick()
            assert [await status_of(house, job) for job in jobs] == [S.SCHEDULED, S.FAILED]
            await work_off(house, jobs[0], compactor.coordinator.tick)
            assert [run_.id for run_ in (await tree_of(house)).compacted] == [0]
            await write_l0s(house, db, "later")
        await house.assert_all_read_everything()

    run(test, tmp_path)


def test_a_cancelled_job_comes_back_under_its_coordinator(tmp_path):
    """It knows nothing of our cancel and writes its own copy back: work is done in vain, and nothing is lost."""

    async def test(house: House) -> None:
        async with opened(house.rust, ROOT, Shape({"compactor_options": COORDINATES})) as db:
            await write_l0s(house, db, "one", "two")
            newest_first = (await tree_of(house)).l0
            job = await submitted(house, tiered([l0(view.id) for view in newest_first], 0))

            async def is_scheduled() -> bool:
                return await status_of(house, job) is S.SCHEDULED

            await until(is_scheduled)
            stopped = worker(house)
            (claimed,) = await stopped.claim()
            await cancel(house, job)
            await stopped._ledger.beat()
            assert claimed.scope.cancel_called, "our worker stops what was cancelled"
            assert not stopped.jobs
            await submitted(house, tiered([l0(newest_first[0].id)], 9))  # whatever makes the coordinator write
            await until(is_scheduled)
            await work_off(house, job)
            await write_l0s(house, db, "later")
        await house.assert_all_read_everything()

    run(test, tmp_path)


async def coordinating(house: House) -> Compactor:
    """Our coordinator, whose rounds the test makes by hand."""
    compactor = house.compactor(take_over=True, embedded_worker=False)
    await compactor.start()
    return compactor


async def refused(house: House) -> dict[Ulid, str]:
    """What our coordinator would fail now, and by which rule."""
    stored = (await house.compactions.read_latest()).value
    step = admit_submitted(await house.manifest(), stored, trivial_moves=False)
    return {rejected.entry.id: rejected.rule for rejected in step.rejected}


async def cancel(house: House, job: Ulid) -> None:
    """What ``shale compaction cancel`` writes."""
    await (await house.compactions.load()).apply(lambda current: with_cancelled(current.value, job))


def worker(house: House) -> Worker:
    """One of ours that takes one job at a time; a worker of SlateDB that claims both panics."""
    executor = Executor(house.store, ROOT, house.env, executor_options())
    return Worker(house.manifests, house.compactions, executor, house.env, WorkerOptions(max_concurrent_compactions=1))


async def wait_a_little() -> None:
    """SlateDB's coordinator makes its rounds by itself."""
    await anyio.sleep(0.02)


Round = Callable[[], Awaitable[None]]


async def two_runs(house: House, db: Any, tick: Round = wait_a_little) -> tuple[list[bytes], list[bytes]]:
    """Runs 0 and 1 out of one L0 each, with the help of a worker of ours; returns their keys."""
    keys = []
    for number in range(2):
        keys += await write_l0s(house, db, f"run{number}")
        (view,) = (await tree_of(house)).l0
        await work_off(house, await submitted(house, tiered([l0(view.id)], number)), tick)
    assert [run_.id for run_ in (await tree_of(house)).compacted] == [1, 0]
    return keys[0], keys[1]


async def work_off(house: House, job: Ulid, tick: Round = wait_a_little) -> None:
    """Let a worker of ours execute one job of whoever coordinates."""
    ours = worker(house)

    async def scheduled() -> bool:
        await tick()
        return await status_of(house, job) is S.SCHEDULED

    async def completed() -> bool:
        await tick()
        # Of all finished entries only the one with the greatest id is kept.
        return await status_of(house, job) in (S.COMPLETED, None)

    await until(scheduled)
    (claimed,) = await ours.claim()
    await ours._execute(claimed)
    await until(completed)


def test_our_coordinator_refuses_whatever_else_slatedbs_tool_lets_through(tmp_path):
    """V1 to V4 and V10: each is one Failed entry, and the file with all of them is still read."""

    async def test(house: House) -> None:
        async with opened(house.rust, ROOT, Shape()) as db:
            await write_l0s(house, db, "oldest", "newest")
            compactor = await coordinating(house)
            newest, oldest = (view.id for view in (await tree_of(house)).l0)
            drain = slate.CompactionSpec.DRAIN_SEGMENT
            wanted = {
                await submitted(house, tiered([], 7)): "V1",
                await submitted(house, drain(segment=b"", sources=[l0(newest), l0(oldest)])): "V2",
                await submitted(house, drain(segment=b"gone", sources=[l0(oldest)])): "V3",
                await submitted(house, tiered([sorted_run(3)], 3)): "V4",
                await submitted(house, tiered([l0(oldest), l0(newest)], 7)): "V7",
                await submitted(house, tiered([l0(oldest), l0(oldest)], 7)): "V7",
            }
            assert await refused(house) == wanted
            await compactor.coordinator.tick()
            assert {await status_of(house, job) for job in wanted} <= {S.FAILED, None}
        await house.assert_all_read_everything()

    run(test, tmp_path)
