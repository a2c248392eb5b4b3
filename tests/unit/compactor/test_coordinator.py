"""The coordinator against a store in memory (docs/protocol.md 6.3, 6.4, 6.6, 6.10)."""

from dataclasses import replace
from uuid import UUID

import anyio
import pytest

from shale.compaction.cancel import with_cancelled
from shale.compaction.entries import finished
from shale.compaction.leveled import Leveled
from shale.compaction.validation import FRESH_RUN_ID_MAX
from shale.errors import FencedError, InvalidDbState, LatestRecordMissing
from shale.protocol.compactions_store import COORDINATOR
from shale.protocol.transactional import Fenceable
from shale.types import Checkpoint, Epoch, ManifestId, WorkerClaim
from shale_compactor.coordinator.options import CoordinatorOptions
from shale_compactor.coordinator.state_view import refresh_view
from shale_compactor.coordinator.writing import write_both
from shale_compactor.process import Compactor, CompactorOptions
from shale_compactor.states.admission import admit_submitted
from shale_compactor.worker.options import WorkerOptions
from tests.unit.compactor.house import House, eventually
from tests.unit.compactor.values import S, drain, entry, manifest, spec, statuses, tree, ulid, view

pytestmark = pytest.mark.anyio
NOW = 1_700_000_000_000


@pytest.fixture
def anyio_backend():
    return "asyncio"


def l0_house(*l0):
    return House(manifest(tree(l0)))


async def test_one_compaction_writes_five_versions():
    """SlateDB writes two more: one that trims at start, and Submitted before Scheduled."""
    house = await l0_house(4, 3, 2, 1).create()
    coordinator = await house.started()
    await coordinator.tick()
    await house.claim_and_finish()
    await coordinator.tick()
    seen = [await house.compactions.read(meta.id) for meta in await house.compactions.list_versions()]
    assert [(value.compactor_epoch, [entry.status for entry in value.entries]) for value in seen] == [
        (0, []),
        (1, []),
        (1, [S.SCHEDULED]),
        (1, [S.RUNNING]),
        (1, [S.COMPACTED]),
        (1, [S.COMPLETED]),
    ]
    latest = await house.manifest()
    assert latest.tree.l0 == ()
    assert [run.id for run in latest.tree.compacted] == [0]
    assert latest.tree.last_compacted_l0_sst_view_id == ulid(4)


async def test_a_commit_pins_the_version_that_references_its_inputs():
    house = await l0_house(4, 3, 2, 1).create()
    coordinator = await house.started(checkpoint_lifetime_s=900)
    await coordinator.tick()
    await house.claim_and_finish()
    await coordinator.commit_tick()
    latest = await house.manifests.read_latest()
    (checkpoint,) = latest.value.checkpoints
    assert checkpoint.manifest_id == latest.id - 1
    pinned = await house.manifests.read(checkpoint.manifest_id)
    assert [view.id.ms for view in pinned.tree.l0] == [4, 3, 2, 1]
    assert checkpoint.expire_s == NOW // 1000 + 900
    assert checkpoint.name is None


async def test_without_a_database_there_is_nothing_to_do():
    with pytest.raises(LatestRecordMissing):
        await House().coordinator().start()


async def test_epochs_of_compactions_may_have_gaps():
    """The seed's trace: C1 claims 2 in the manifest, C2 claims 3 in both, C1 is fenced at the compactions."""
    house = await House().create()
    await house.started()
    await house.edit_manifest(compactor_epoch=2)
    await house.started()
    assert (await house.stored()).compactor_epoch == 3
    stored = await house.compactions.load()
    with pytest.raises(FencedError):
        await Fenceable.claim_epoch(stored, COORDINATOR, Epoch(2))


async def test_invalid_submissions_fail_and_valid_ones_run():
    """T6.h, F4.11."""
    house = await l0_house(3, 2, 1).create()
    coordinator = await house.started()
    await house.edit(entry(NOW, spec((3, 2), to=7)), entry(NOW + 1, spec((2, 1), to=0)), entry(NOW + 2, spec(to=9)))
    await coordinator.tick()
    stored = statuses(await house.stored())
    assert stored[NOW + 1] is S.SCHEDULED
    assert stored[NOW + 2] is S.FAILED
    assert NOW not in stored, "of the finished entries only the newest stays"


async def test_unknown_running_entries_are_ignored():
    house = await l0_house(4, 3, 2, 1).create()
    coordinator = await house.started()
    await house.edit(entry(NOW, spec((4, 3, 2, 1), to=0), S.RUNNING))
    await coordinator.tick()
    assert [e.status for e in coordinator.local.entries] == [S.SCHEDULED]


async def test_checkpoints_of_others_are_kept():
    """T3.b."""
    house = await l0_house(4, 3, 2, 1).create()
    coordinator = await house.started()
    await coordinator.tick()
    await house.claim_and_finish()
    theirs = Checkpoint(id=UUID(int=5), manifest_id=ManifestId(1))
    await house.edit_manifest(checkpoints=(theirs,))
    await coordinator.commit_tick()
    assert theirs in (await house.manifest()).checkpoints


async def test_capacity_bounds_what_is_submitted():
    house = await House(manifest(tree((4, 3, 2, 1)), a=tree((8, 7, 6, 5)), b=tree((12, 11, 10, 9)))).create()
    coordinator = await house.started(max_concurrent_compactions=2)
    await coordinator.tick()
    assert len((await house.stored()).entries) == 2
    coordinator.reconfigure(CoordinatorOptions(max_concurrent_compactions=3))
    await coordinator.tick()
    assert len((await house.stored()).entries) == 3


async def test_another_policy_goes_on_from_what_it_finds():
    """Two runs of one size are nothing to size-tiered; leveled has one run per level."""
    house = await House(manifest(tree((), (1, 0)))).create()
    coordinator = await house.started()
    await coordinator.tick()
    assert (await house.stored()).entries == ()
    coordinator.reconfigure(CoordinatorOptions(scheduler=Leveled()))
    await coordinator.tick()
    (job,) = (await house.stored()).entries
    assert job.spec == spec(runs=(1, 0), to=0)


async def test_a_sealed_database_stops_the_coordinator():
    house = await l0_house(1).create()
    coordinator = await house.started()
    await house.edit_manifest(initialized=False)
    with pytest.raises(InvalidDbState):
        await coordinator.tick()


async def test_a_database_marked_as_destroyed_stops_the_whole_process():
    """docs/protocol.md 8.8: at start and once per poll."""
    house = await l0_house(1).create()
    compactor = Compactor(house.store, "db", house.env, CompactorOptions())
    await compactor.start()
    await house.store.put("db/.destroyed", b"{}")
    with pytest.raises(InvalidDbState):
        await compactor.run()
    with pytest.raises(InvalidDbState):
        await Compactor(house.store, "db", house.env, CompactorOptions()).start()


async def test_a_half_built_clone_is_waited_for():
    house = await House(replace(manifest(tree((1,))), initialized=False)).create()
    with pytest.raises(LatestRecordMissing):
        await Compactor(house.store, "db", house.env, CompactorOptions()).start()
    assert (await house.manifest()).compactor_epoch == 0


async def test_results_are_committed_soon_after_the_worker_calls():
    """The embedded worker does not wait for the next tick: the loops wake each other."""
    house = await l0_house(4, 3, 2, 1).create()
    coordinator = await house.started()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(coordinator.run)
        await eventually(lambda: has_status(house, S.SCHEDULED))
        await house.claim_and_finish()
        coordinator._results_ready.call()
        await eventually(lambda: has_status(house, S.COMPLETED))
        tasks.cancel_scope.cancel()
    assert [run.id for run in (await house.manifest()).tree.compacted] == [0]


async def test_an_idle_coordinator_looks_when_it_is_asked_to():
    """What an administrator submits through its own port does not wait for the next tick."""
    house = await House(manifest(tree((), (2, 1)))).create()
    coordinator = await house.started()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(coordinator.run)
        await anyio.wait_all_tasks_blocked()
        await house.edit(entry(house.clock.ms, spec(runs=(2, 1), to=1)))
        coordinator.look()
        await eventually(lambda: has_status(house, S.SCHEDULED))
        tasks.cancel_scope.cancel()


async def has_status(house, status):
    return status in statuses(await house.stored()).values()


async def test_a_cancelled_job_stops_and_is_not_proposed_again_at_once():
    """docs/protocol.md 6.13, with the worker's half."""
    house = await l0_house(4, 3, 2, 1).create()
    coordinator = await house.started()
    await coordinator.tick()
    (job,) = (await house.stored()).entries
    worker = house.worker()
    (running,) = await worker.claim()
    stored = await house.compactions.load()
    await stored.apply(lambda current: with_cancelled(current.value, job.id))
    for _ in range(2):
        await coordinator.tick()
    (failed,) = (await house.stored()).entries
    assert (failed.id, failed.status, failed.worker, failed.ctx) == (job.id, S.FAILED, None, None)
    await worker._finish(running, await house.executor.run(running.plan, running.progress))
    await coordinator.tick()
    assert [entry.status for entry in (await house.stored()).entries] == [S.FAILED]
    assert (await house.manifest()).tree.compacted == ()
    house.clock.advance(301)
    await coordinator.tick()
    assert S.SCHEDULED in statuses(await house.stored()).values()


async def test_other_sources_than_the_cancelled_ones_are_proposed_at_once():
    house = await l0_house(4, 3, 2, 1).create()
    coordinator = await house.started()
    await coordinator.tick()
    (job,) = (await house.stored()).entries
    await house.edit(finished(job, S.FAILED))
    await coordinator.tick()
    latest = (await house.manifest()).tree
    await house.edit_manifest(tree=replace(latest, l0=(view(5), *latest.l0)))
    await coordinator.tick()
    (proposed,) = (entry for entry in (await house.stored()).entries if entry.is_active)
    assert [id_.ms for id_ in proposed.spec.l0_view_ids] == [5, 4, 3, 2, 1]


async def test_a_cancellation_between_look_and_write_holds():
    """The coordinator schedules what an admin cancels in the same moment."""
    house = await l0_house(3, 2, 1).create()
    coordinator = await house.started()
    await house.edit(entry(NOW, spec((3, 2, 1), to=0)))
    await refresh_view(coordinator.view)
    await house.edit(entry(NOW, spec((3, 2, 1), to=0), S.FAILED))
    step = admit_submitted(coordinator.manifest.value, coordinator.local, trivial_moves=False)
    assert statuses(step.compactions) == {NOW: S.SCHEDULED}
    await write_both(coordinator.view, step.manifest, step.compactions, house.env, checkpoint_lifetime_s=900)
    assert statuses(await house.stored()) == {NOW: S.FAILED}


async def test_finished_entries_that_others_leave_behind_are_forgotten_at_the_next_tick():
    house = await l0_house(1).create()
    coordinator = await house.started()
    await house.edit(*(entry(NOW + number, spec((1,), to=0), S.FAILED) for number in range(3)))
    await coordinator.tick()
    assert statuses(await house.stored()) == {NOW + 2: S.FAILED}


async def test_a_submission_is_judged_between_two_ticks():
    house = await l0_house(1).create()
    coordinator = await house.started()
    await coordinator.tick()
    await house.edit(entry(NOW, spec((1,), to=0)))
    await coordinator.commit_tick()
    assert statuses(await house.stored()) == {NOW: S.SCHEDULED}


class Crowded:
    """Somebody else is always a moment faster: every second write of compactions meets a conflict."""

    def __init__(self, house, rush):
        self._house, self._rush, self._is_late = house, rush, False

    def __getattr__(self, name):
        return getattr(self._house.store, name)

    async def put(self, key, data, **options):
        self._is_late = "/compactions/" in key and not self._is_late
        if self._is_late:
            await self._rush()
        return await self._house.store.put(key, data, **options)


async def test_a_silent_worker_loses_its_job_although_others_write_in_between():
    """What a conflict brings back is as old as it was; else nothing would be reclaimed while others are busy."""
    house = await House(manifest(tree((), (4, 3, 2, 1)))).create()
    silent, busy = (entry(NOW + at, spec(runs=runs, to=runs[1]), S.RUNNING) for at, runs in enumerate([(4, 3), (2, 1)]))

    async def beat():
        await house.edit(replace(busy, worker=WorkerClaim(worker_id="busy", last_heartbeat_ms=house.clock.ms)))

    await house.compactions.load_or_create()
    await house.edit(silent, busy)
    coordinator = await house.started(store=Crowded(house, beat))
    for _ in range(4):
        await coordinator.tick()
        assert statuses(await house.stored()) == {NOW: S.RUNNING, NOW + 1: S.RUNNING}
        house.clock.advance(10)
        await beat()
    await coordinator.tick()
    assert statuses(await house.stored()) == {NOW: S.SCHEDULED, NOW + 1: S.RUNNING}


async def test_after_an_outage_workers_get_time_for_a_heartbeat():
    """A store that was away, or a machine that was suspended, held the worker up as well."""
    house = await l0_house(4, 3, 2, 1).create()
    coordinator = await house.started()
    await coordinator.tick()
    await house.worker().claim()
    await house.watch(coordinator, 9)
    house.clock.advance(600)
    await coordinator.tick()
    assert set(statuses(await house.stored()).values()) == {S.RUNNING}
    await house.watch(coordinator, 13)
    await coordinator.tick()
    assert set(statuses(await house.stored()).values()) == {S.SCHEDULED}


async def test_rarer_heartbeats_and_the_longer_timeout_that_goes_with_them_are_taken_over_together():
    """Else every job would be taken back between two heartbeats."""
    house = await l0_house(4, 3, 2, 1).create()
    compactor = Compactor(house.store, "db", house.env, CompactorOptions())
    await compactor.start()
    await compactor.coordinator.tick()
    await house.worker().claim()
    slower = CoordinatorOptions(worker_heartbeat_timeout_s=100)
    compactor.reconfigure(CompactorOptions(coordinator=slower, worker=WorkerOptions(heartbeat_interval_s=40)))
    await house.watch(compactor.coordinator, 60)
    await compactor.coordinator.tick()
    assert set(statuses(await house.stored()).values()) == {S.RUNNING}


async def test_a_run_with_the_highest_id_that_may_be_asked_for_does_not_end_compaction():
    """One request with such a destination, and no L0 could have been compacted any more."""
    trees = {"a": tree((8, 7, 6, 5)), "b": tree((14, 13, 12, 11))}
    house = await House(manifest(tree((4, 3, 2, 1)), **trees)).create()
    coordinator = await house.started(scheduler=Idle())
    await house.edit(entry(NOW, spec((8, 7, 6, 5), to=FRESH_RUN_ID_MAX, segment=b"a")))
    await coordinator.tick()
    await house.claim_and_finish()
    coordinator.reconfigure(CoordinatorOptions())
    await coordinator.tick()
    scheduled = [entry for entry in (await house.stored()).entries if entry.is_active]
    assert {job.spec.destination for job in scheduled} == {FRESH_RUN_ID_MAX + 1, FRESH_RUN_ID_MAX + 2}


@pytest.mark.parametrize("status", [S.SCHEDULED, S.COMPACTED])
async def test_a_drain_in_a_state_that_no_drain_should_be_in_is_done(status):
    """It ended the coordinator at every start, or stood in the way of its segment for ever."""
    house = await House(manifest(tree((1,)), a=tree((4, 3), (2,)))).create()
    await house.compactions.load_or_create()
    await house.edit(entry(NOW, drain(b"a", (4, 3), (2,)), status))
    coordinator = await house.started()
    await coordinator.tick()
    assert statuses(await house.stored()) == {NOW: S.COMPLETED}
    assert (await house.manifest()).tree_of(b"a").is_empty


class Idle:
    """Leaves everything to administrators."""

    def plan(self, manifest, compactions):
        return ()
