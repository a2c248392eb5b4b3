"""The worker against a store in memory (docs/protocol.md 6.9)."""

from dataclasses import replace

import anyio
import pytest

from shale.errors import CorruptionError
from shale.telemetry.metrics import Metrics
from shale.types import WorkerClaim
from shale_compactor.nudge import Nudge
from shale_compactor.worker.claims import claim as claim_edit
from shale_compactor.worker.claims import owns
from shale_compactor.worker.heartbeats import next_beat_s
from tests.unit.compactor.house import House, eventually
from tests.unit.compactor.values import S, entry, manifest, spec, statuses, tree, ulid

pytestmark = pytest.mark.anyio
JOB = entry(9, spec((2, 1), to=0), S.SCHEDULED)


@pytest.fixture
def anyio_backend():
    return "asyncio"


async def scheduled(*entries):
    house = await House(manifest(tree((2, 1)), a=tree((4, 3)))).create()
    await house.compactions.load_or_create()
    await house.edit(*(entries or (JOB,)))
    return house


async def run_until(worker, condition):
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await eventually(condition)
        tasks.cancel_scope.cancel()


async def test_without_compactions_a_worker_waits():
    """F4.23."""
    house = await House().create()
    assert await house.worker().claim() == []


async def test_a_job_is_claimed_executed_and_handed_over():
    house = await scheduled()
    worker = house.worker()

    async def is_compacted():
        return statuses(await house.stored()) == {9: S.COMPACTED}

    await run_until(worker, is_compacted)
    (done,) = (await house.stored()).entries
    assert done.worker.worker_id == worker.id
    assert len(done.output_ssts) == 1
    assert done.ctx is None
    (job,) = house.executor.jobs
    assert [view.id.ms for view in job.l0] == [2, 1]
    assert job.is_dest_last_run


async def test_a_worker_for_one_job_leaves_the_others_alone():
    """Older ones too."""
    house = await scheduled(entry(8, spec((4, 3), to=0, segment=b"a"), S.SCHEDULED), JOB)
    worker = house.worker(only=frozenset({JOB.id}))
    assert [job.plan.id for job in await worker.claim()] == [JOB.id]
    assert await worker.claim() == []
    assert statuses(await house.stored()) == {8: S.SCHEDULED, 9: S.RUNNING}


async def test_two_workers_never_own_one_job():
    """F4.6."""
    house = await scheduled()
    first, second = house.worker(2), house.worker(3)
    claimed = []

    async def claim(worker):
        claimed.append(await worker.claim())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(claim, first)
        tasks.start_soon(claim, second)
    assert sorted(map(len, claimed)) == [0, 1]


async def test_a_lost_answer_to_a_claim_counts_as_claimed():
    """docs/protocol.md 1.5: our own write looks like a conflict, and the entry carries our name already."""
    house = await scheduled()
    worker = house.worker()
    await worker._ledger.refresh()
    mine = worker._ledger._stored
    real = mine.update

    async def update(dirty):
        mine.update = real
        stored = await house.compactions.load()
        await stored.apply(lambda current: claim_edit(current.value, [JOB.id], worker.id, 5))
        return await real(dirty)

    mine.update = update
    (job,) = await worker.claim()
    assert job.plan.id == JOB.id


async def test_a_claim_whose_sources_are_gone_is_released():
    house = await scheduled(entry(9, spec((7,), to=0), S.SCHEDULED))
    worker = house.worker()
    assert await worker.claim() == []
    assert statuses(await house.stored()) == {9: S.SCHEDULED}
    before = (await house.compactions.read_latest()).id
    assert await worker.claim() == []
    assert (await house.compactions.read_latest()).id == before, "not claimed again at once"


async def test_a_stopping_worker_gives_its_claims_back():
    house = await scheduled()
    house.executor.gate = anyio.Event()
    worker = house.worker()

    async def is_running():
        return bool(house.executor.jobs)

    await run_until(worker, is_running)
    (free,) = (await house.stored()).entries
    assert (free.status, free.worker) == (S.SCHEDULED, None)
    assert free.ctx is not None, "the plan is kept"
    assert house.executor.cancelled == 1


async def test_a_failed_job_is_released_and_waits_before_the_next_try():
    house = await scheduled()
    house.executor.error = CorruptionError("broken")
    metrics = Metrics()
    worker = house.worker(metrics=metrics, name="w")

    async def was_released():
        return bool(house.executor.jobs) and statuses(await house.stored()) == {9: S.SCHEDULED}

    await run_until(worker, was_released)
    assert await worker.claim() == []
    house.clock.advance(2)
    house.executor.error = None
    assert len(await worker.claim()) == 1
    value = metrics.registry.get_sample_value
    labels = {"db": "", "error_type": "corruption", "retryable": "false"}
    assert value("slatedb_compaction_errors_total", labels) == 1
    assert value("slatedb_corruption_total", {"db": "", "resource": "compacted"}) == 1
    assert value("slatedb_compactor_running", {"db": "", "worker": "w"}) == 0


async def test_a_worker_that_lost_its_job_drops_the_result():
    """T6.d and F4.3: while it stood still, another worker took the job over."""
    house = await scheduled()
    house.executor.gate = anyio.Event()
    metrics = Metrics()
    worker = house.worker(metrics=metrics, name="w")
    other = entry(9, JOB.spec, S.RUNNING, worker=WorkerClaim(worker_id="other", last_heartbeat_ms=0))

    async def runs():
        return bool(house.executor.jobs)

    async def was_cancelled():
        return house.executor.cancelled > 0

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await eventually(runs)
        await house.edit(other)
        await worker._ledger.beat()
        await eventually(was_cancelled)
        tasks.cancel_scope.cancel()
    assert (await house.stored()).entries == (other,)
    value = metrics.registry.get_sample_value
    assert value("slatedb_compactor_running", {"db": "", "worker": "w"}) == 0
    for result in ("completed", "failed"):
        labels = {"db": "", "size_class": "lt_64m", "result": result}
        assert value("slatedb_compaction_duration_seconds_count", labels) == 0, "a cancelled job counts neither way"


async def test_a_result_that_comes_too_late_changes_nothing():
    house = await scheduled()
    worker = house.worker()
    (job,) = await worker.claim()
    other = entry(9, JOB.spec, S.RUNNING, worker=WorkerClaim(worker_id="other", last_heartbeat_ms=0))
    await house.edit(other)
    await worker._finish(job, await house.executor.run(job.plan, job.progress))
    assert (await house.stored()).entries == (other,)


async def test_a_reclaimed_job_is_stopped_before_the_same_worker_may_claim_it():
    """F4.4."""
    house = await scheduled()
    house.executor.gate = anyio.Event()
    worker = house.worker()
    (job,) = await worker.claim()
    await house.edit(JOB)
    assert await worker.claim() == []
    assert job.scope.cancel_called
    worker._stopping.clear()  # what the job's task does when it has ended
    (again,) = await worker.claim()
    assert again is not job


async def test_heartbeats_carry_time_and_progress():
    house = await scheduled()
    worker = house.worker()
    (job,) = await worker.claim()
    await house.executor.run(job.plan, job.progress)
    house.clock.advance(10)
    await worker._ledger.beat()
    (stored,) = (await house.stored()).entries
    assert owns(stored, worker.id)
    assert stored.worker.last_heartbeat_ms == house.clock.ms
    assert stored.ctx == job.progress.context()


async def test_capacity_bounds_claims():
    house = await scheduled(JOB, entry(10, spec((4, 3), to=1, segment=b"a"), S.SCHEDULED))
    worker = house.worker(max_concurrent_compactions=1)
    assert [job.plan.id for job in await worker.claim()] == [ulid(9)]
    assert await worker.claim() == []


async def test_looks_for_jobs_are_spread_out():
    """Half to one and a half intervals apart, so that workers that started together do not stay together."""
    house = await scheduled()
    waits = []

    class Noted(Nudge):
        async def wait(self, timeout_s):
            waits.append(timeout_s)
            if len(waits) == 200:
                tasks.cancel_scope.cancel()
            await anyio.lowlevel.checkpoint()
            return False

    worker = house.worker(compactions_poll_interval_s=4.0)
    worker._jobs_ready = Noted()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
    assert 2.0 <= min(waits) < 2.4
    assert 5.6 < max(waits) <= 6.0


async def test_a_smaller_capacity_counts_from_the_next_look():
    house = await scheduled(JOB, entry(10, spec((4, 3), to=1, segment=b"a"), S.SCHEDULED))
    worker = house.worker()
    worker.reconfigure(replace(worker.options, max_concurrent_compactions=1))
    assert len(await worker.claim()) == 1
    assert await worker.claim() == []
    worker.reconfigure(replace(worker.options, max_concurrent_compactions=2))
    assert len(await worker.claim()) == 1


@pytest.mark.parametrize(("last_s", "chance", "due_s"), [(100.0, 0.0, 110.0), (100.0, 1.0, 108.5)])
def test_beats_are_at_a_fixed_rate_from_beginning_to_beginning(last_s, chance, due_s):
    assert next_beat_s(last_s, 10.0, chance) == due_s
