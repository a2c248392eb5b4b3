"""An administrator beside a coordinator and a worker, on a store in memory."""

from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
import anyio.lowlevel
import pytest

import shale
from shale.admin.compactions import CancelIgnored, CompactionAdmin, NotFailed
from shale.admin.retained import CompactionsHistory
from shale.compaction.cancel import TooLateToCancel
from shale.compaction.records import CompactionKind
from shale.compaction.requests import Full, FullSegment, Spec
from shale.compaction.status import Phase
from shale.errors import (
    AlreadyExists,
    ClosedError,
    InvalidCompaction,
    InvalidDbState,
    InvalidRequestError,
    LatestRecordMissing,
    NotFoundError,
)
from shale.format.names import deleting_key
from shale.types import Compactions
from shale_compactor.compactor import Compactor, CompactorOptions
from shale_compactor.coordinator.options import CoordinatorOptions
from shale_compactor.worker.options import WorkerOptions
from tests.unit.compactor.harness import Harness, eventually
from tests.unit.compactor.values import S, drain, entry, manifest, spec, sst, statuses, tree, ulid

pytestmark = pytest.mark.anyio
STATE = manifest(tree((4, 3, 2, 1), (3, 2, 1)), log=tree((14, 13), (8, 6)))
FULL_ROOT = Spec(spec(runs=(3, 2, 1), to=1))


@pytest.fixture
def anyio_backend():
    return "asyncio"


class Idle:
    """A scheduler that proposes nothing; administrators submit all jobs."""

    def plan(self, manifest, compactions):
        return ()


@asynccontextmanager
async def harness_and_admin(first=STATE, *, started=True):
    harness = await Harness(first).create()
    if started:
        await harness.compactions.load_or_create()
    async with shale.Admin(store=harness.store, path="db", env=harness.new_env(7)) as admin:
        yield harness, admin


async def test_a_submission_is_stored_and_run():
    async with harness_and_admin() as (harness, admin):
        coordinator = await harness.started(scheduler=Idle())
        harness.clock.advance(1)
        (submitted,) = await admin.submit_compaction(FULL_ROOT)
        assert (submitted.phase, submitted.progress.bytes_total) == (Phase.SUBMITTED, 300)
        assert submitted.created_ms == harness.clock.ms

        harness.clock.advance(5)
        await coordinator.run_round()
        assert (await admin.compaction_status(submitted.id)).phase is Phase.SCHEDULED
        harness.clock.advance(1)
        started_ms = harness.clock.ms
        worker = harness.worker()
        (job,) = await worker.claim()
        running = await admin.compaction_status(str(submitted.id).lower())
        assert (running.phase, running.started_ms, running.attempts) == (Phase.READING, started_ms, 1)
        assert running.worker.worker_id == worker.id

        harness.clock.advance(10)
        await worker.execute(job)
        committing = await admin.compaction_status(submitted.id)
        assert (committing.phase, committing.progress.percentage) == (Phase.COMMITTING, 100.0)
        await coordinator.run_round()
        done = await admin.wait_for_compaction(submitted.id)
        assert (done.phase, done.error, done.attempts) == (Phase.COMPLETED, None, 1)
        assert (done.started_ms, done.finished_ms) == (started_ms, harness.clock.ms)
        assert done.progress.bytes_total == 300, "the inputs are found in an older manifest"
        assert len(done.outputs) == 1


async def test_full_is_one_version_with_an_entry_per_tree():
    async with harness_and_admin() as (harness, admin):
        before = (await harness.compactions.read_latest()).id
        first, second = await admin.submit_compaction(Full())
        latest = await harness.compactions.read_latest()
        assert latest.id == before + 1
        assert {entry.id for entry in latest.value.entries} == {first.id, second.id}
        assert [info.spec.segment for info in (first, second)] == [b"", b"log"]
        assert await admin.compactions() == tuple(sorted((first, second), key=lambda info: info.id))


async def test_nothing_to_compact_writes_nothing():
    async with harness_and_admin(manifest(tree((2, 1)))) as (harness, admin):
        assert await admin.submit_compaction(Full()) == ()
        assert await admin.compactions() == ()
        assert (await harness.compactions.read_latest()).id == 1


async def test_a_dry_run_writes_nothing():
    async with harness_and_admin() as (harness, admin):
        (info,) = await admin.submit_compaction(FullSegment(b"log"), dry_run=True)
        assert info.spec == spec(runs=(8, 6), to=6, segment=b"log")
        assert (await harness.stored()).entries == ()


@pytest.mark.parametrize(
    ("rule", "first", "second"),
    [
        pytest.param("V7", None, Spec(spec((4, 3), to=9)), id="an older L0 is left out"),
        pytest.param("V12", FULL_ROOT, Spec(spec(runs=(2, 1), to=1)), id="overlap with a submitted one"),
        pytest.param("V8", None, Spec(drain(b"log", (14,), (8, 6))), id="drain with an older L0 left"),
    ],
)
async def test_what_would_lose_rows_is_refused_before_it_is_stored(rule, first, second):
    async with harness_and_admin() as (harness, admin):
        if first is not None:
            await admin.submit_compaction(first)
        before = (await harness.compactions.read_latest()).id
        for dry_run in (True, False):
            with pytest.raises(InvalidCompaction) as refused:
                await admin.submit_compaction(second, dry_run=dry_run)
            assert refused.value.rule == rule
        assert (await harness.compactions.read_latest()).id == before


async def test_of_two_submissions_at_once_the_second_is_checked_against_the_first():
    async with harness_and_admin() as (harness, _):
        refused = []

        async def submit(seed):
            other = CompactionAdmin(harness.store, "db", harness.new_env(seed))
            try:
                await other.submit(FULL_ROOT)
            except InvalidCompaction as error:
                refused.append(error.rule)

        async with anyio.create_task_group() as tasks:
            for seed in (1, 2, 3):
                tasks.start_soon(submit, seed)
        assert refused == ["V12", "V12"]
        assert len((await harness.stored()).entries) == 1


async def test_a_lost_answer_is_not_submitted_twice():
    harness = await Harness(STATE).create()
    await harness.compactions.load_or_create()

    class Forgetful:
        """Store a compactions file and report a conflict once; keep no ids of puts."""

        supports_attributes = False
        forgets = 1

        def __getattr__(self, name):
            return getattr(harness.store, name)

        async def put(self, key, data, *, mode, attributes=None):
            result = await harness.store.put(key, data, mode=mode)
            if self.forgets and "compactions/" in key:
                self.forgets -= 1
                (mine,) = (await harness.stored()).entries
                await harness.edit(replace(mine, status=S.SCHEDULED))
                raise AlreadyExists(key)
            return result

    admin = CompactionAdmin(Forgetful(), "db", harness.new_env(3))
    (info,) = await admin.submit(FULL_ROOT)
    assert statuses(await harness.stored()) == {info.id.ms: S.SCHEDULED}, "what the coordinator made of it stays"
    assert (await harness.compactions.read_latest()).id == 3


async def test_absence_and_states_that_forbid_submitting():
    async with harness_and_admin(started=False) as (harness, admin):
        with pytest.raises(InvalidDbState, match="start a compactor"):
            await admin.submit_compaction(Full())
        assert await admin.compactions() == ()
        with pytest.raises(NotFoundError, match="none of the stored versions"):
            await admin.compaction_status(ulid(5))
        with pytest.raises(InvalidRequestError, match="'5' is not the id"):
            await admin.compaction_status("5")
        async with shale.Admin(store=harness.store, path="nowhere") as nowhere:
            for call in (nowhere.submit_compaction(Full()), nowhere.compactions(), nowhere.compaction_status(ulid(5))):
                with pytest.raises(LatestRecordMissing):
                    await call
        await harness.compactions.load_or_create()
        await harness.store.put(deleting_key("db"), b"")
        with pytest.raises(InvalidDbState, match="destroyed"):
            await admin.submit_compaction(Full())
    with pytest.raises(ClosedError):
        await admin.compactions()


async def test_a_rejected_entry_names_its_rule():
    """Another tool stored it without validation; the coordinator refused it and stored no message."""
    async with harness_and_admin() as (harness, admin):
        coordinator = await harness.started(scheduler=Idle())
        await harness.edit(entry(harness.clock.ms, spec((4, 3), to=9)))
        await coordinator.run_round()
        info = await admin.wait_for_compaction(ulid(harness.clock.ms))
        assert (info.phase, info.finished_ms) == (Phase.FAILED, harness.clock.ms)
        assert info.error.startswith("V7: ")


async def test_a_compaction_that_retention_has_dropped_is_still_told():
    """F4: only the finished entry with the greatest id stays; an older one is resolved from earlier versions."""
    async with harness_and_admin() as (harness, admin):
        coordinator = await harness.started(scheduler=Idle())
        now = harness.clock.ms
        await harness.edit(entry(now, spec((4, 3), to=9)), entry(now + 1, spec(runs=(3, 1), to=1)))
        await coordinator.run_round()
        assert statuses(await harness.stored()) == {now + 1: S.FAILED}
        info = await admin.wait_for_compaction(ulid(now))
        assert info.phase is Phase.FAILED
        assert info.error.startswith("V7: ")
        assert [each.id.ms for each in await admin.compactions()] == [now + 1]
        assert [each.id.ms for each in await admin.compactions(all_retained=True)] == [now, now + 1]
        past = await admin.compaction_status(ulid(now), file_id=(await harness.compactions.read_latest()).id - 1)
        assert past.phase is Phase.SUBMITTED
        with pytest.raises(NotFoundError, match="does not know it"):
            await admin.compaction_status(ulid(now), file_id=1)


async def test_a_completed_one_that_was_dropped_at_once_is_found_in_the_manifest():
    async with harness_and_admin() as (harness, admin):
        coordinator = await harness.started(scheduler=Idle())
        now = harness.clock.ms
        await harness.edit(entry(now, spec(runs=(3, 2), to=2)))
        await coordinator.run_round()
        worker = harness.worker()
        (job,) = await worker.claim()
        await worker.execute(job)
        # A greater id finishes in the same write, so no version ever shows ours as Completed.
        await harness.edit(entry(now + 1, spec((4, 3), to=9)))
        await coordinator.run_round()
        assert statuses(await harness.stored()) == {now + 1: S.FAILED}
        info = await admin.compaction_status(ulid(now))
        assert (info.phase, info.error, info.progress.percentage) == (Phase.COMPLETED, None, 100.0)


async def test_a_collected_compaction_is_unknown_and_not_waited_for():
    async with harness_and_admin() as (harness, admin):
        await harness.edit(entry(harness.clock.ms, FULL_ROOT.spec, S.RUNNING))
        await harness.edit(entry(harness.clock.ms + 1, FULL_ROOT.spec, S.COMPLETED))
        stored = await harness.compactions.load()
        await stored.apply(lambda current: Compactions(entries=current.value.entries[1:]))
        await harness.compactions.delete(3)
        with pytest.raises(NotFoundError, match="deleted by GC"):
            await admin.wait_for_compaction(ulid(harness.clock.ms))


async def test_in_one_process_a_compaction_waits_for_no_timer():
    """A submission wakes the coordinator, which wakes the worker, and its end wakes the admin."""
    harness = await Harness(STATE).create()
    options = CompactorOptions(
        coordinator=CoordinatorOptions(scheduler=Idle(), poll_interval_s=3600, commit_compacted_interval_s=3600),
        worker=WorkerOptions(compactions_poll_interval_s=3600),
    )
    compactor = Compactor(harness.store, "db", harness.env, options, executor=harness.executor)
    await compactor.start()
    admin = CompactionAdmin(harness.store, "db", harness.env)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(compactor.run)
        await anyio.wait_all_tasks_blocked()  # the first round is over
        with anyio.fail_after(60):
            (submitted,) = await admin.submit(FULL_ROOT)
            info = await admin.wait(submitted.id, poll_interval_s=3600)
        tasks.cancel_scope.cancel()
    assert info.phase is Phase.COMPLETED


@pytest.mark.parametrize("status", [S.SUBMITTED, S.SCHEDULED, S.RUNNING])
async def test_cancelling(status):
    async with harness_and_admin() as (harness, admin):
        id_ = ulid(harness.clock.ms)
        await harness.edit(entry(harness.clock.ms, FULL_ROOT.spec))
        if status is not S.SUBMITTED:
            await harness.edit(entry(harness.clock.ms, FULL_ROOT.spec, status))
        info = await admin.cancel_compaction(id_)
        assert (info.phase, info.error) == (Phase.FAILED, "cancelled")
        stored = (await harness.stored()).get(id_)
        assert (stored.status, stored.worker, stored.ctx) == (S.FAILED, None, None)
        with pytest.raises(TooLateToCancel, match="is failed: too late"):
            await admin.cancel_compaction(id_)


async def test_too_late_to_cancel():
    async with harness_and_admin() as (harness, admin):
        await harness.edit(entry(9, FULL_ROOT.spec, S.COMPACTED))
        with pytest.raises(TooLateToCancel, match="is compacted"):
            await admin.cancel_compaction(ulid(9))
        with pytest.raises(NotFoundError):
            await admin.cancel_compaction(ulid(8))


async def test_a_coordinator_that_does_not_know_of_cancelling_is_noticed():
    async with harness_and_admin() as (harness, admin):
        mine = entry(harness.clock.ms, FULL_ROOT.spec, S.SCHEDULED)
        await harness.edit(mine)

        async def write_it_back():
            while (await harness.stored()).get(mine.id).status is not S.FAILED:
                await anyio.lowlevel.checkpoint()
            await harness.edit(mine)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write_it_back)
            with pytest.raises(CancelIgnored, match="is scheduled after all"):
                await admin.cancel_compaction(mine.id, confirm_s=30, poll_interval_s=0)
        assert statuses(await harness.stored()) == {mine.id.ms: S.SCHEDULED}


async def test_a_cancelled_job_stops_and_stays_cancelled():
    """The worker stops at its next heartbeat; the coordinator adopts the edit and never reverts it."""
    async with harness_and_admin() as (harness, admin):
        harness.executor.gate = anyio.Event()
        coordinator = await harness.started(scheduler=Idle(), poll_interval_s=0.02, commit_compacted_interval_s=0.02)
        worker = harness.worker(heartbeat_interval_s=0.02, compactions_poll_interval_s=0.02)
        harness.clock.advance(1)
        (job,) = await admin.submit_compaction(FULL_ROOT)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(coordinator.run)
            tasks.start_soon(worker.run)

            async def is_running():
                harness.clock.advance(1)
                return len(harness.executor.jobs) == 1

            async def has_stopped():
                harness.clock.advance(1)
                return harness.executor.cancelled == 1

            await eventually(is_running)
            told = await admin.cancel_compaction(job.id)
            assert (told.phase, told.error) == (Phase.FAILED, "cancelled")
            await eventually(has_stopped)
            tasks.cancel_scope.cancel()
        await coordinator.run_round()
        assert statuses(await harness.stored()) == {job.id.ms: S.FAILED}
        assert [run.id for run in (await harness.manifest()).tree.compacted] == [3, 2, 1]


async def test_a_result_that_is_listed_for_long_is_in_memory_once():
    async with harness_and_admin() as (harness, _):
        done = entry(harness.clock.ms, FULL_ROOT.spec, S.COMPLETED, output_ssts=(sst(30), sst(31)))
        await harness.edit(replace(done, status=S.RUNNING, output_ssts=()))
        for number in range(3):
            await harness.edit(done, entry(harness.clock.ms + 1 + number, spec((4, 3), to=9), S.SCHEDULED))
        snapshots = await CompactionsHistory(harness.compactions).since(0)
        outputs = [each.compactions.entries[0].output_ssts for each in snapshots[2:]]
        assert len(outputs) == 3
        assert outputs[0] == done.output_ssts
        assert len({id(each) for each in outputs}) == 1


async def test_a_submission_from_a_clock_that_is_ahead_is_found_when_it_has_ended():
    """Its id is newer than every version that contains it."""
    async with harness_and_admin() as (harness, admin):
        coordinator = await harness.started(scheduler=Idle())
        done = entry(harness.clock.ms + 3_600_000, spec(runs=(3, 2), to=2))
        await harness.edit(done)
        await coordinator.run_round()
        await harness.claim_and_finish()
        await coordinator.run_round()
        await harness.edit(entry(done.id.ms + 1, spec(runs=(99,), to=99)))
        await coordinator.run_round()
        assert (await harness.stored()).get(done.id) is None
        assert (await admin.wait_for_compaction(done.id)).phase is Phase.COMPLETED


class Forgetful:
    """A store that loses the response to the first write of compactions; the repeated write finds the file."""

    def __init__(self, store, meanwhile):
        self._store, self._meanwhile = store, meanwhile

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def put(self, key, data, **options):
        await self._store.put(key, data, **options)
        if "/compactions/" in key and self._meanwhile is not None:
            meanwhile, self._meanwhile = self._meanwhile, None
            await meanwhile()
            raise AlreadyExists(key)


async def test_a_submission_whose_answer_was_lost_is_not_made_again_although_it_is_done_and_forgotten():
    async with harness_and_admin() as (harness, _):
        coordinator = await harness.started(scheduler=Idle())

        async def done_and_forgotten():
            await coordinator.run_round()
            await harness.claim_and_finish()
            await coordinator.run_round()
            await harness.edit(entry(harness.clock.ms + 1, spec(runs=(99,), to=99)))
            await coordinator.run_round()

        store = Forgetful(harness.store, done_and_forgotten)
        admin = CompactionAdmin(store, "db", harness.new_env(7))
        (submitted,) = await admin.submit(FullSegment(b"log"))
        assert [job.is_active for job in (await harness.stored()).entries] == [False]
        assert (await admin.status(submitted.id)).phase is Phase.COMPLETED


class Asleep(Forgetful):
    """The same, but a callback runs before the first write arrives."""

    async def put(self, key, data, **options):
        if "/compactions/" in key and self._meanwhile is not None:
            meanwhile, self._meanwhile = self._meanwhile, None
            await meanwhile()
            await self._store.put(key, data, **options)
            raise AlreadyExists(key)
        await self._store.put(key, data, **options)


async def test_a_submission_that_came_too_late_for_its_version_is_made_again():
    """The collector has passed that id meanwhile, so the created version does not count."""
    async with harness_and_admin() as (harness, _):

        async def collected():
            before = (await harness.compactions.read_latest()).id
            for number in range(3):
                await harness.edit(entry(number, spec(runs=(99,), to=99), S.FAILED))
            await harness.compactions.advance_boundary(before + 2)
            await harness.compactions.delete_behind_boundary(before + 1)

        admin = CompactionAdmin(Asleep(harness.store, collected), "db", harness.new_env(7))
        (submitted,) = await admin.submit(FullSegment(b"log"))
        assert (await harness.stored()).get(submitted.id) is not None


async def failed_job(harness, coordinator):
    """Let the scheduler propose a job, whose first attempt ends it."""
    await coordinator.run_round()
    (job,) = (await harness.stored()).entries
    harness.executor.error = ZeroDivisionError("in a filter")
    await harness.claim_and_finish()
    await coordinator.run_round()
    harness.executor.error = None
    return job


async def forget_versions(harness):
    """Delete all versions but the newest, as GC does, and end another compaction in that one."""
    stored = await harness.compactions.load()
    newer = entry(harness.clock.ms + 10**9, spec(runs=(1,), to=1), S.FAILED)
    await stored.apply(lambda current: replace(current.value, entries=(newer,)))
    *old, _ = await harness.compactions.list_versions()
    await harness.compactions.advance_boundary(old[-1].id)
    for version in old:
        await harness.compactions.delete(version.id)


async def test_kind_attempts_times_and_error_are_told_when_the_versions_are_gone():
    async with harness_and_admin(manifest(tree((4, 3, 2, 1)))) as (harness, admin):
        coordinator = await harness.started()
        harness.clock.advance(1)
        job = await failed_job(harness, coordinator)
        before = await admin.compaction_status(job.id)
        await forget_versions(harness)
        info = await admin.compaction_status(job.id)
        assert (info.phase, info.kind, info.attempts) == (Phase.FAILED, CompactionKind.INTERNAL, 1)
        assert info.error == before.error == "ZeroDivisionError: in a filter"
        assert (info.spec, info.finished_ms) == (job.spec, harness.clock.ms)
        newest = (await harness.stored()).entries[-1].id
        assert [each.id for each in await admin.compactions()] == [newest]
        assert [each.id for each in await admin.compactions(all_retained=True)] == [job.id, newest]


async def test_a_record_that_does_not_tell_the_end_is_not_listed():
    async with harness_and_admin(manifest(tree((4, 3, 2, 1)))) as (harness, admin):
        await harness.started(scheduler=Idle())
        await harness.compactions.records.change(ulid(7), lambda record: replace(record, attempts_count=1))
        assert await admin.compactions(all_retained=True) == ()


async def test_a_completed_one_tells_its_output_when_the_versions_are_gone():
    async with harness_and_admin(manifest(tree((4, 3, 2, 1)))) as (harness, admin):
        coordinator = await harness.started()
        await coordinator.run_round()
        (job,) = (await harness.stored()).entries
        await harness.claim_and_finish()
        await coordinator.run_round()
        done = await admin.compaction_status(job.id)
        await forget_versions(harness)
        info = await admin.compaction_status(job.id)
        assert (info.phase, info.kind, info.attempts) == (Phase.COMPLETED, CompactionKind.INTERNAL, 1)
        assert (info.progress.output_ssts, info.progress.output_bytes) == (1, done.progress.output_bytes)


async def test_a_failed_compaction_is_retried_under_a_new_id():
    async with harness_and_admin(manifest(tree((4, 3, 2, 1)))) as (harness, admin):
        coordinator = await harness.started()
        job = await failed_job(harness, coordinator)
        again = await admin.retry_compaction(job.id)
        assert (again.phase, again.kind, again.retry_of) == (Phase.SUBMITTED, CompactionKind.EXTERNAL, job.id)
        assert again.spec.l0_view_ids == job.spec.l0_view_ids
        await coordinator.run_round()
        await harness.claim_and_finish()
        await coordinator.run_round()
        assert (await admin.compaction_status(again.id)).phase is Phase.COMPLETED
        with pytest.raises(NotFailed, match="completed"):
            await admin.retry_compaction(again.id)
        with pytest.raises(InvalidCompaction, match="V4"):
            await admin.retry_compaction(job.id)
