"""The coordinator against a store in memory (docs/reference/protocol.md 6.3, 6.4, 6.6, 6.10)."""

from dataclasses import replace
from uuid import UUID

import anyio
import pytest

from shale.compaction.cancel import with_cancelled
from shale.compaction.entries import finished
from shale.compaction.policies.leveled import Leveled
from shale.compaction.validation import FRESH_RUN_ID_MAX
from shale.errors import FencedError, InvalidDbState, LatestRecordMissing
from shale.protocol.compactions_store import COORDINATOR
from shale.protocol.transactional import Fenceable
from shale.types import Checkpoint, Epoch, ManifestId, WorkerClaim
from shale_compactor.compactor import Compactor, CompactorOptions
from shale_compactor.coordinator.options import CoordinatorOptions
from shale_compactor.coordinator.state import refresh_state
from shale_compactor.coordinator.state_writer import write_both
from shale_compactor.planning.admission import admit_submitted
from shale_compactor.worker.options import WorkerOptions
from tests.unit.compactor.harness import Harness, eventually
from tests.unit.compactor.values import S, drain, entry, manifest, spec, statuses, tree, ulid, view

pytestmark = pytest.mark.anyio
NOW = 1_700_000_000_000


@pytest.fixture
def anyio_backend():
    return "asyncio"


def l0_harness(*l0):
    return Harness(manifest(tree(l0)))


async def test_one_compaction_writes_five_versions():
    """SlateDB writes two more: one that trims at start, and Submitted before Scheduled."""
    harness = await l0_harness(4, 3, 2, 1).create()
    coordinator = await harness.started()
    await coordinator.run_round()
    await harness.claim_and_finish()
    await coordinator.run_round()
    seen = [await harness.compactions.read(meta.id) for meta in await harness.compactions.list_versions()]
    assert [(value.compactor_epoch, [entry.status for entry in value.entries]) for value in seen] == [
        (0, []),
        (1, []),
        (1, [S.SCHEDULED]),
        (1, [S.RUNNING]),
        (1, [S.COMPACTED]),
        (1, [S.COMPLETED]),
    ]
    latest = await harness.manifest()
    assert latest.tree.l0 == ()
    assert [run.id for run in latest.tree.compacted] == [0]
    assert latest.tree.last_compacted_l0_sst_view_id == ulid(4)


async def test_a_commit_pins_the_version_that_references_its_inputs():
    harness = await l0_harness(4, 3, 2, 1).create()
    coordinator = await harness.started(checkpoint_lifetime_s=900)
    await coordinator.run_round()
    await harness.claim_and_finish()
    await coordinator.run_commit_round()
    latest = await harness.manifests.read_latest()
    (checkpoint,) = latest.value.checkpoints
    assert checkpoint.manifest_id == latest.id - 1
    pinned = await harness.manifests.read(checkpoint.manifest_id)
    assert [view.id.ms for view in pinned.tree.l0] == [4, 3, 2, 1]
    assert checkpoint.expire_s == NOW // 1000 + 900
    assert checkpoint.name is None


async def test_without_a_database_there_is_nothing_to_do():
    with pytest.raises(LatestRecordMissing):
        await Harness().coordinator().start()


async def test_epochs_of_compactions_may_have_gaps():
    """C1 claims 2 in the manifest, C2 claims 3 in both, C1 is fenced at the compactions."""
    harness = await Harness().create()
    await harness.started()
    await harness.edit_manifest(compactor_epoch=2)
    await harness.started()
    assert (await harness.stored()).compactor_epoch == 3
    stored = await harness.compactions.load()
    with pytest.raises(FencedError):
        await Fenceable.claim_epoch(stored, COORDINATOR, Epoch(2))


@pytest.mark.fault("F4.11")
async def test_invalid_submissions_fail_and_valid_ones_run():
    """T6.h."""
    harness = await l0_harness(3, 2, 1).create()
    coordinator = await harness.started()
    await harness.edit(entry(NOW, spec((3, 2), to=7)), entry(NOW + 1, spec((2, 1), to=0)), entry(NOW + 2, spec(to=9)))
    await coordinator.run_round()
    stored = statuses(await harness.stored())
    assert stored[NOW + 1] is S.SCHEDULED
    assert stored[NOW + 2] is S.FAILED
    assert NOW not in stored, "of the finished entries only the newest stays"


async def test_unknown_running_entries_are_ignored():
    harness = await l0_harness(4, 3, 2, 1).create()
    coordinator = await harness.started()
    await harness.edit(entry(NOW, spec((4, 3, 2, 1), to=0), S.RUNNING))
    await coordinator.run_round()
    assert [e.status for e in coordinator.local.entries] == [S.SCHEDULED]


async def test_checkpoints_of_others_are_kept():
    """T3.b."""
    harness = await l0_harness(4, 3, 2, 1).create()
    coordinator = await harness.started()
    await coordinator.run_round()
    await harness.claim_and_finish()
    theirs = Checkpoint(id=UUID(int=5), manifest_id=ManifestId(1))
    await harness.edit_manifest(checkpoints=(theirs,))
    await coordinator.run_commit_round()
    assert theirs in (await harness.manifest()).checkpoints


async def test_capacity_bounds_what_is_submitted():
    harness = await Harness(manifest(tree((4, 3, 2, 1)), a=tree((8, 7, 6, 5)), b=tree((12, 11, 10, 9)))).create()
    coordinator = await harness.started(max_concurrent_compactions=2)
    await coordinator.run_round()
    assert len((await harness.stored()).entries) == 2
    coordinator.reconfigure(CoordinatorOptions(max_concurrent_compactions=3))
    await coordinator.run_round()
    assert len((await harness.stored()).entries) == 3


async def test_another_policy_goes_on_from_what_it_finds():
    """Two runs of one size satisfy size-tiered; leveled allows one run per level."""
    harness = await Harness(manifest(tree((), (1, 0)))).create()
    coordinator = await harness.started()
    await coordinator.run_round()
    assert (await harness.stored()).entries == ()
    coordinator.reconfigure(CoordinatorOptions(scheduler=Leveled()))
    await coordinator.run_round()
    (job,) = (await harness.stored()).entries
    assert job.spec == spec(runs=(1, 0), to=0)


async def test_a_sealed_database_stops_the_coordinator():
    harness = await l0_harness(1).create()
    coordinator = await harness.started()
    await harness.edit_manifest(initialized=False)
    with pytest.raises(InvalidDbState):
        await coordinator.run_round()


async def test_a_database_marked_as_destroyed_stops_the_whole_process():
    """docs/reference/protocol.md 8.8: at start and once per poll."""
    harness = await l0_harness(1).create()
    compactor = Compactor(harness.store, "db", harness.env, CompactorOptions())
    await compactor.start()
    await harness.store.put("db/.destroyed", b"{}")
    with pytest.raises(InvalidDbState):
        await compactor.run()
    with pytest.raises(InvalidDbState):
        await Compactor(harness.store, "db", harness.env, CompactorOptions()).start()


async def test_a_half_built_clone_is_waited_for():
    harness = await Harness(replace(manifest(tree((1,))), initialized=False)).create()
    with pytest.raises(LatestRecordMissing):
        await Compactor(harness.store, "db", harness.env, CompactorOptions()).start()
    assert (await harness.manifest()).compactor_epoch == 0


async def test_results_are_committed_soon_after_the_worker_calls():
    """The embedded worker does not wait for the next tick: the loops wake each other."""
    harness = await l0_harness(4, 3, 2, 1).create()
    coordinator = await harness.started()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(coordinator.run)
        await eventually(lambda: has_status(harness, S.SCHEDULED))
        await harness.claim_and_finish()
        coordinator.wake()
        await eventually(lambda: has_status(harness, S.COMPLETED))
        tasks.cancel_scope.cancel()
    assert [run.id for run in (await harness.manifest()).tree.compacted] == [0]


async def test_an_idle_coordinator_looks_when_it_is_asked_to():
    """A submission through the coordinator's own port does not wait for the next tick."""
    harness = await Harness(manifest(tree((), (2, 1)))).create()
    coordinator = await harness.started()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(coordinator.run)
        await anyio.wait_all_tasks_blocked()
        await harness.edit(entry(harness.clock.ms, spec(runs=(2, 1), to=1)))
        coordinator.wake()
        await eventually(lambda: has_status(harness, S.SCHEDULED))
        tasks.cancel_scope.cancel()


async def has_status(harness, status):
    return status in statuses(await harness.stored()).values()


async def test_a_cancelled_job_stops_and_is_not_proposed_again_at_once():
    """docs/reference/protocol.md 6.13, with the worker's part."""
    harness = await l0_harness(4, 3, 2, 1).create()
    coordinator = await harness.started()
    await coordinator.run_round()
    (job,) = (await harness.stored()).entries
    worker = harness.worker()
    (running,) = await worker.claim()
    stored = await harness.compactions.load()
    await stored.apply(lambda current: with_cancelled(current.value, job.id))
    for _ in range(2):
        await coordinator.run_round()
    (failed,) = (await harness.stored()).entries
    assert (failed.id, failed.status, failed.worker, failed.ctx) == (job.id, S.FAILED, None, None)
    await worker.execute(running)
    await coordinator.run_round()
    assert [entry.status for entry in (await harness.stored()).entries] == [S.FAILED]
    assert (await harness.manifest()).tree.compacted == ()
    harness.clock.advance(301)
    await coordinator.run_round()
    assert S.SCHEDULED in statuses(await harness.stored()).values()


async def test_other_sources_than_the_cancelled_ones_are_proposed_at_once():
    harness = await l0_harness(4, 3, 2, 1).create()
    coordinator = await harness.started()
    await coordinator.run_round()
    (job,) = (await harness.stored()).entries
    await harness.edit(finished(job, S.FAILED))
    await coordinator.run_round()
    latest = (await harness.manifest()).tree
    await harness.edit_manifest(tree=replace(latest, l0=(view(5), *latest.l0)))
    await coordinator.run_round()
    (proposed,) = (entry for entry in (await harness.stored()).entries if entry.is_active)
    assert [id_.ms for id_ in proposed.spec.l0_view_ids] == [5, 4, 3, 2, 1]


async def test_a_cancellation_between_look_and_write_holds():
    """The coordinator schedules a job at the time at which an administrator cancels it."""
    harness = await l0_harness(3, 2, 1).create()
    coordinator = await harness.started()
    await harness.edit(entry(NOW, spec((3, 2, 1), to=0)))
    await refresh_state(coordinator.view)
    await harness.edit(entry(NOW, spec((3, 2, 1), to=0), S.FAILED))
    step = admit_submitted(coordinator.manifest.value, coordinator.local, trivial_moves=False)
    assert statuses(step.compactions) == {NOW: S.SCHEDULED}
    await write_both(coordinator.view, step.manifest, step.compactions, harness.env, checkpoint_lifetime_s=900)
    assert statuses(await harness.stored()) == {NOW: S.FAILED}


async def test_finished_entries_of_other_processes_are_removed_at_the_next_tick():
    harness = await l0_harness(1).create()
    coordinator = await harness.started()
    await harness.edit(*(entry(NOW + number, spec((1,), to=0), S.FAILED) for number in range(3)))
    await coordinator.run_round()
    assert statuses(await harness.stored()) == {NOW + 2: S.FAILED}


async def test_a_submission_is_judged_between_two_ticks():
    harness = await l0_harness(1).create()
    coordinator = await harness.started()
    await coordinator.run_round()
    await harness.edit(entry(NOW, spec((1,), to=0)))
    await coordinator.run_commit_round()
    assert statuses(await harness.stored()) == {NOW: S.SCHEDULED}


class Crowded:
    """A store in which every second write of compactions has a conflict."""

    def __init__(self, harness, rush):
        self._harness, self._rush, self._is_late = harness, rush, False

    def __getattr__(self, name):
        return getattr(self._harness.store, name)

    async def put(self, key, data, **options):
        self._is_late = "/compactions/" in key and not self._is_late
        if self._is_late:
            await self._rush()
        return await self._harness.store.put(key, data, **options)


async def test_a_silent_worker_loses_its_job_although_others_write_in_between():
    """A conflict does not renew a heartbeat; otherwise no job would be reclaimed while others write."""
    harness = await Harness(manifest(tree((), (4, 3, 2, 1)))).create()
    silent, busy = (entry(NOW + at, spec(runs=runs, to=runs[1]), S.RUNNING) for at, runs in enumerate([(4, 3), (2, 1)]))

    async def beat():
        await harness.edit(replace(busy, worker=WorkerClaim(worker_id="busy", last_heartbeat_ms=harness.clock.ms)))

    await harness.compactions.load_or_create()
    await harness.edit(silent, busy)
    coordinator = await harness.started(store=Crowded(harness, beat))
    for _ in range(4):
        await coordinator.run_round()
        assert statuses(await harness.stored()) == {NOW: S.RUNNING, NOW + 1: S.RUNNING}
        harness.clock.advance(10)
        await beat()
    await coordinator.run_round()
    assert statuses(await harness.stored()) == {NOW: S.SCHEDULED, NOW + 1: S.RUNNING}


async def test_after_an_outage_workers_get_time_for_a_heartbeat():
    """An unavailable store or a suspended machine delays the worker too."""
    harness = await l0_harness(4, 3, 2, 1).create()
    coordinator = await harness.started()
    await coordinator.run_round()
    await harness.worker().claim()
    await harness.watch(coordinator, 9)
    harness.clock.advance(600)
    await coordinator.run_round()
    assert set(statuses(await harness.stored()).values()) == {S.RUNNING}
    await harness.watch(coordinator, 13)
    await coordinator.run_round()
    assert set(statuses(await harness.stored()).values()) == {S.SCHEDULED}


async def test_rarer_heartbeats_and_the_longer_timeout_that_goes_with_them_are_taken_over_together():
    """Otherwise every job would be reclaimed between two heartbeats."""
    harness = await l0_harness(4, 3, 2, 1).create()
    compactor = Compactor(harness.store, "db", harness.env, CompactorOptions())
    await compactor.start()
    await compactor.coordinator.run_round()
    await harness.worker().claim()
    slower = CoordinatorOptions(worker_heartbeat_timeout_s=100)
    compactor.reconfigure(CompactorOptions(coordinator=slower, worker=WorkerOptions(heartbeat_interval_s=40)))
    await harness.watch(compactor.coordinator, 60)
    await compactor.coordinator.run_round()
    assert set(statuses(await harness.stored()).values()) == {S.RUNNING}


async def test_a_run_with_the_highest_id_that_may_be_asked_for_does_not_end_compaction():
    """One such destination would prevent all later compactions of L0s."""
    trees = {"a": tree((8, 7, 6, 5)), "b": tree((14, 13, 12, 11))}
    harness = await Harness(manifest(tree((4, 3, 2, 1)), **trees)).create()
    coordinator = await harness.started(scheduler=Idle())
    await harness.edit(entry(NOW, spec((8, 7, 6, 5), to=FRESH_RUN_ID_MAX, segment=b"a")))
    await coordinator.run_round()
    await harness.claim_and_finish()
    coordinator.reconfigure(CoordinatorOptions())
    await coordinator.run_round()
    scheduled = [entry for entry in (await harness.stored()).entries if entry.is_active]
    assert {job.spec.destination for job in scheduled} == {FRESH_RUN_ID_MAX + 1, FRESH_RUN_ID_MAX + 2}


@pytest.mark.parametrize("status", [S.SCHEDULED, S.COMPACTED])
async def test_a_drain_in_a_state_that_no_drain_should_be_in_is_done(status):
    """It ended the coordinator at every start, or blocked its segment for ever."""
    harness = await Harness(manifest(tree((1,)), a=tree((4, 3), (2,)))).create()
    await harness.compactions.load_or_create()
    await harness.edit(entry(NOW, drain(b"a", (4, 3), (2,)), status))
    coordinator = await harness.started()
    await coordinator.run_round()
    assert statuses(await harness.stored()) == {NOW: S.COMPLETED}
    assert (await harness.manifest()).tree_of(b"a").is_empty


class Idle:
    """A scheduler that proposes nothing; administrators submit all jobs."""

    def plan(self, manifest, compactions):
        return ()
