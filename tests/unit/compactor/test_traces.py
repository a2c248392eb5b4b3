"""The traces of docs/protocol.md 6.15 against a store in memory.

T6.f is in test_commit, T6.g in test_validation.
"""

from dataclasses import replace

import pytest

from shale.errors import FencedError
from shale.types import EVERYTHING, CompactionContext, Seq, Subcompaction, WorkerClaim
from shale_compactor.coordinator.state_view import refresh_view
from shale_compactor.coordinator.writing import write_both
from shale_compactor.states.commit import commit_compacted
from tests.unit.compactor.house import START_MS, House
from tests.unit.compactor.values import S, entry, manifest, spec, sst, statuses, tree, view

pytestmark = pytest.mark.anyio
PROGRESS = CompactionContext(
    subcompactions=(Subcompaction(range=EVERYTHING, output_ssts=(sst(START_MS + 1),)),), retention_min_seq=Seq(3)
)


@pytest.fixture
def anyio_backend():
    return "asyncio"


def l0_house(*l0):
    return House(manifest(tree(l0)))


async def commit(coordinator, house):
    """What a commit tick does once it has looked."""
    step = commit_compacted(coordinator.manifest.value, coordinator.local)
    await write_both(coordinator.view, step.manifest, step.compactions, house.env, checkpoint_lifetime_s=900)


async def test_t6_a_what_a_dead_coordinator_left_submitted_is_validated_by_the_next():
    house = await l0_house(3, 2, 1).create()
    await house.started()
    await house.edit(entry(START_MS, spec((3, 2, 1), to=0)), entry(START_MS + 1, spec((3, 2), to=7)))
    await (await house.started()).tick()
    assert statuses(await house.stored()) == {START_MS: S.SCHEDULED, START_MS + 1: S.FAILED}


async def test_t6_b_what_a_dead_coordinator_left_scheduled_is_judged_anew_and_keeps_its_progress():
    house = await l0_house(3, 2, 1).create()
    await house.started()
    worker = WorkerClaim(worker_id="gone", last_heartbeat_ms=1)
    await house.edit(
        entry(START_MS, spec((3, 2, 1), to=0), S.SCHEDULED, ctx=PROGRESS, worker=worker),
        entry(START_MS + 1, spec((3, 2), to=7), S.SCHEDULED),
    )
    before = len(await house.compactions.list_versions())
    await house.started()
    first, second = (await house.stored()).entries
    assert (first.status, first.worker, first.ctx) == (S.SCHEDULED, None, PROGRESS)
    assert second.status is S.FAILED
    assert len(await house.compactions.list_versions()) == before + 2, "the claim and one write"


async def test_t6_c_a_silent_worker_loses_its_job_and_the_next_one_goes_on_from_its_progress():
    house = await l0_house(4, 3, 2, 1).create()
    coordinator = await house.started()
    await coordinator.tick()
    (job,) = (await house.stored()).entries
    await house.edit(
        replace(job, status=S.RUNNING, worker=WorkerClaim(worker_id="x", last_heartbeat_ms=1), ctx=PROGRESS)
    )
    await coordinator.tick()
    await house.watch(coordinator, 29)
    await coordinator.tick()
    assert set(statuses(await house.stored()).values()) == {S.RUNNING}
    await house.watch(coordinator, 2)
    await coordinator.tick()
    (taken_back,) = (await house.stored()).entries
    assert (taken_back.status, taken_back.worker, taken_back.ctx) == (S.SCHEDULED, None, PROGRESS)
    await house.claim_and_finish()
    (resumed,) = house.executor.jobs
    assert resumed.id == job.id


async def test_t6_d_a_worker_that_wakes_up_after_its_job_was_done_by_another_drops_its_result():
    house = await l0_house(4, 3, 2, 1).create()
    coordinator = await house.started()
    await coordinator.tick()
    sleeper = house.worker(seed=7)
    (job,) = await sleeper.claim()
    late = await house.executor.run(job.plan, job.progress)
    await coordinator.tick()
    await house.watch(coordinator, 31)
    await coordinator.tick()
    await house.claim_and_finish()
    await coordinator.tick()
    committed = await house.manifest()
    await sleeper._finish(job, late)
    await coordinator.tick()
    assert set(statuses(await house.stored()).values()) == {S.COMPLETED}
    assert (await house.manifest()).tree == committed.tree
    assert late[0].id not in committed.ssts()


async def test_t6_e_a_claim_during_a_write_of_the_coordinator_is_adopted():
    house = await l0_house(4, 3, 2, 1).create()
    coordinator = await house.started()
    await coordinator.tick()
    (job,) = (await house.stored()).entries
    await refresh_view(coordinator.view)
    worker = house.worker()
    await worker.claim()
    more = entry(START_MS + 9, spec((9,), to=9), S.FAILED)
    wanted = replace(coordinator.local, entries=(*coordinator.local.entries, more))
    await write_both(coordinator.view, coordinator.manifest.value, wanted, house.env, checkpoint_lifetime_s=900)
    running = (await house.stored()).get(job.id)
    assert (running.status, running.worker.worker_id) == (S.RUNNING, worker.id)


async def test_t6_h_an_l0_that_is_not_among_the_oldest_is_not_compacted():
    house = await l0_house(3, 2, 1).create()
    coordinator = await house.started()
    await house.edit(entry(START_MS, spec((3, 2), to=7)))
    await coordinator.tick()
    assert statuses(await house.stored()) == {START_MS: S.FAILED}
    assert [view.id.ms for view in (await house.manifest()).tree.l0] == [3, 2, 1]


async def test_t6_i_the_older_of_two_coordinators_writes_nothing_more():
    house = await l0_house(4, 3, 2, 1).create()
    old = await house.started()
    new = await house.started()
    with pytest.raises(FencedError):
        await old.tick()
    before = len(await house.compactions.list_versions()), len(await house.manifests.list_versions())
    for write in (old.tick, old.commit_tick):
        with pytest.raises(FencedError):
            await write()
    assert before == (len(await house.compactions.list_versions()), len(await house.manifests.list_versions()))
    await new.tick()
    assert (await house.manifest()).compactor_epoch == (await house.stored()).compactor_epoch == 2


async def test_t6_j_what_a_zombie_has_merged_locally_is_never_published():
    house = await l0_house(4, 3, 2, 1).create()
    zombie = await house.started()
    await zombie.tick()
    await house.claim_and_finish()
    await refresh_view(zombie.view)
    await house.started()
    with pytest.raises(FencedError):
        await commit(zombie, house)
    assert (await house.manifest()).tree.compacted == ()
    assert [view.id.ms for view in (await house.manifest()).tree.l0] == [4, 3, 2, 1]


async def test_t6_k_a_finished_entry_does_not_come_back_with_a_late_heartbeat():
    """F4.28: the coordinator completes while a worker's older copy is written in between."""
    house = await l0_house(4, 3, 2, 1).create()
    coordinator = await house.started()
    await coordinator.tick()
    await house.claim_and_finish()
    await refresh_view(coordinator.view)
    (waiting,) = (await house.stored()).entries
    await house.edit(replace(waiting, status=S.RUNNING, worker=WorkerClaim(worker_id="x", last_heartbeat_ms=1)))
    await commit(coordinator, house)
    (done,) = (await house.stored()).entries
    assert done.status is S.COMPLETED
    assert [run.id for run in (await house.manifest()).tree.compacted] == [0]


async def test_commits_survive_writers_that_are_always_faster():
    """F4.10: every update of the manifest meets a writer's flush; no L0 is lost and one checkpoint is enough."""
    house = await l0_house(4, 3, 2, 1).create()
    coordinator = await house.started()
    await coordinator.tick()
    await house.claim_and_finish()
    await refresh_view(coordinator.view)
    real = coordinator.manifest.update
    flushed = []

    async def update(dirty):
        consumes = not dirty.value.tree.l0 or dirty.value.tree.compacted
        if consumes and len(flushed) < 6:
            flushed.append(5 + len(flushed))
            latest = (await house.manifest()).tree
            await house.edit_manifest(tree=replace(latest, l0=(view(flushed[-1]), *latest.l0)))
        return await real(dirty)

    coordinator.manifest.update = update
    await commit(coordinator, house)
    latest = await house.manifest()
    assert [view.id.ms for view in latest.tree.l0] == flushed[::-1]
    assert len(flushed) == 6
    assert [run.id for run in latest.tree.compacted] == [0]
    assert len(latest.checkpoints) == 1
