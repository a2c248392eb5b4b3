"""The traces of docs/reference/protocol.md 6.15 against a store in memory.

T6.f is in test_commit, T6.g in test_validation.
"""

from dataclasses import replace

import pytest

from shale.errors import FencedError
from shale.types import EVERYTHING, CompactionContext, Seq, Subcompaction, WorkerClaim
from shale_compactor.coordinator.state import refresh_state
from shale_compactor.coordinator.state_writer import write_both
from shale_compactor.planning.commit import commit_compacted
from tests.unit.compactor.harness import START_MS, Harness
from tests.unit.compactor.values import S, entry, manifest, spec, sst, statuses, tree, view

pytestmark = pytest.mark.anyio
PROGRESS = CompactionContext(
    subcompactions=(Subcompaction(range=EVERYTHING, output_ssts=(sst(START_MS + 1),)),), retention_min_seq=Seq(3)
)


@pytest.fixture
def anyio_backend():
    return "asyncio"


def l0_harness(*l0):
    return Harness(manifest(tree(l0)))


async def commit(coordinator, harness):
    """Commit as a tick does after it has read the state."""
    step = commit_compacted(coordinator.manifest.value, coordinator.local)
    await write_both(coordinator.view, step.manifest, step.compactions, harness.env, checkpoint_lifetime_s=900)


async def test_t6_a_what_a_dead_coordinator_left_submitted_is_validated_by_the_next():
    harness = await l0_harness(3, 2, 1).create()
    await harness.started()
    await harness.edit(entry(START_MS, spec((3, 2, 1), to=0)), entry(START_MS + 1, spec((3, 2), to=7)))
    await (await harness.started()).run_round()
    assert statuses(await harness.stored()) == {START_MS: S.SCHEDULED, START_MS + 1: S.FAILED}


async def test_t6_b_what_a_dead_coordinator_left_scheduled_is_judged_anew_and_keeps_its_progress():
    harness = await l0_harness(3, 2, 1).create()
    await harness.started()
    worker = WorkerClaim(worker_id="gone", last_heartbeat_ms=1)
    await harness.edit(
        entry(START_MS, spec((3, 2, 1), to=0), S.SCHEDULED, ctx=PROGRESS, worker=worker),
        entry(START_MS + 1, spec((3, 2), to=7), S.SCHEDULED),
    )
    before = len(await harness.compactions.list_versions())
    await harness.started()
    first, second = (await harness.stored()).entries
    assert (first.status, first.worker, first.ctx) == (S.SCHEDULED, None, PROGRESS)
    assert second.status is S.FAILED
    assert len(await harness.compactions.list_versions()) == before + 2, "the claim and one write"


async def test_t6_c_a_silent_worker_loses_its_job_and_the_next_one_goes_on_from_its_progress():
    harness = await l0_harness(4, 3, 2, 1).create()
    coordinator = await harness.started()
    await coordinator.run_round()
    (job,) = (await harness.stored()).entries
    await harness.edit(
        replace(job, status=S.RUNNING, worker=WorkerClaim(worker_id="x", last_heartbeat_ms=1), ctx=PROGRESS)
    )
    await coordinator.run_round()
    await harness.watch(coordinator, 29)
    await coordinator.run_round()
    assert set(statuses(await harness.stored()).values()) == {S.RUNNING}
    await harness.watch(coordinator, 2)
    await coordinator.run_round()
    (taken_back,) = (await harness.stored()).entries
    assert (taken_back.status, taken_back.worker, taken_back.ctx) == (S.SCHEDULED, None, PROGRESS)
    await harness.claim_and_finish()
    (resumed,) = harness.executor.jobs
    assert resumed.id == job.id


class EarlierResult:
    """An executor that returns the outputs of a worker before its stall."""

    outputs = ()

    async def run(self, job, progress):
        return self.outputs


async def test_t6_d_a_worker_that_wakes_up_after_its_job_was_done_by_another_drops_its_result():
    harness = await l0_harness(4, 3, 2, 1).create()
    coordinator = await harness.started()
    await coordinator.run_round()
    late = EarlierResult()
    sleeper = harness.worker(seed=7, executor=late)
    (job,) = await sleeper.claim()
    late.outputs = await harness.executor.run(job.plan, job.progress)
    await coordinator.run_round()
    await harness.watch(coordinator, 31)
    await coordinator.run_round()
    await harness.claim_and_finish()
    await coordinator.run_round()
    committed = await harness.manifest()
    await sleeper.execute(job)
    await coordinator.run_round()
    assert set(statuses(await harness.stored()).values()) == {S.COMPLETED}
    assert (await harness.manifest()).tree == committed.tree
    assert late.outputs[0].id not in committed.ssts()


async def test_t6_e_a_claim_during_a_write_of_the_coordinator_is_adopted():
    harness = await l0_harness(4, 3, 2, 1).create()
    coordinator = await harness.started()
    await coordinator.run_round()
    (job,) = (await harness.stored()).entries
    await refresh_state(coordinator.view)
    worker = harness.worker()
    await worker.claim()
    more = entry(START_MS + 9, spec((9,), to=9), S.FAILED)
    wanted = replace(coordinator.local, entries=(*coordinator.local.entries, more))
    await write_both(coordinator.view, coordinator.manifest.value, wanted, harness.env, checkpoint_lifetime_s=900)
    running = (await harness.stored()).get(job.id)
    assert (running.status, running.worker.worker_id) == (S.RUNNING, worker.id)


async def test_t6_h_an_l0_that_is_not_among_the_oldest_is_not_compacted():
    harness = await l0_harness(3, 2, 1).create()
    coordinator = await harness.started()
    await harness.edit(entry(START_MS, spec((3, 2), to=7)))
    await coordinator.run_round()
    assert statuses(await harness.stored()) == {START_MS: S.FAILED}
    assert [view.id.ms for view in (await harness.manifest()).tree.l0] == [3, 2, 1]


async def test_t6_i_the_older_of_two_coordinators_writes_nothing_more():
    harness = await l0_harness(4, 3, 2, 1).create()
    old = await harness.started()
    new = await harness.started()
    with pytest.raises(FencedError):
        await old.run_round()
    before = len(await harness.compactions.list_versions()), len(await harness.manifests.list_versions())
    for write in (old.run_round, old.run_commit_round):
        with pytest.raises(FencedError):
            await write()
    assert before == (len(await harness.compactions.list_versions()), len(await harness.manifests.list_versions()))
    await new.run_round()
    assert (await harness.manifest()).compactor_epoch == (await harness.stored()).compactor_epoch == 2


async def test_t6_j_what_a_zombie_has_merged_locally_is_never_published():
    harness = await l0_harness(4, 3, 2, 1).create()
    zombie = await harness.started()
    await zombie.run_round()
    await harness.claim_and_finish()
    await refresh_state(zombie.view)
    await harness.started()
    with pytest.raises(FencedError):
        await commit(zombie, harness)
    assert (await harness.manifest()).tree.compacted == ()
    assert [view.id.ms for view in (await harness.manifest()).tree.l0] == [4, 3, 2, 1]


@pytest.mark.fault("F4.28")
async def test_t6_k_a_finished_entry_does_not_come_back_with_a_late_heartbeat():
    """The coordinator completes while a worker writes an older copy."""
    harness = await l0_harness(4, 3, 2, 1).create()
    coordinator = await harness.started()
    await coordinator.run_round()
    await harness.claim_and_finish()
    await refresh_state(coordinator.view)
    (waiting,) = (await harness.stored()).entries
    await harness.edit(replace(waiting, status=S.RUNNING, worker=WorkerClaim(worker_id="x", last_heartbeat_ms=1)))
    await commit(coordinator, harness)
    (done,) = (await harness.stored()).entries
    assert done.status is S.COMPLETED
    assert [run.id for run in (await harness.manifest()).tree.compacted] == [0]


@pytest.mark.fault("F4.10")
async def test_commits_survive_writers_that_are_always_faster():
    """Each update of the manifest conflicts with a flush; no L0 is lost and one checkpoint suffices."""
    harness = await l0_harness(4, 3, 2, 1).create()
    coordinator = await harness.started()
    await coordinator.run_round()
    await harness.claim_and_finish()
    await refresh_state(coordinator.view)
    real = coordinator.manifest.update
    flushed = []

    async def update(dirty):
        consumes = not dirty.value.tree.l0 or dirty.value.tree.compacted
        if consumes and len(flushed) < 6:
            flushed.append(5 + len(flushed))
            latest = (await harness.manifest()).tree
            await harness.edit_manifest(tree=replace(latest, l0=(view(flushed[-1]), *latest.l0)))
        return await real(dirty)

    coordinator.manifest.update = update
    await commit(coordinator, harness)
    latest = await harness.manifest()
    assert [view.id.ms for view in latest.tree.l0] == flushed[::-1]
    assert len(flushed) == 6
    assert [run.id for run in latest.tree.compacted] == [0]
    assert len(latest.checkpoints) == 1
