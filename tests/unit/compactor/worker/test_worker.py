"""The worker against a store in memory (docs/reference/protocol.md 6.9)."""

from dataclasses import replace

import anyio
import pytest

from shale.concurrency.signal import WakeEvent
from shale.errors import AlreadyExists, CorruptionError, UnavailableError
from shale.store.memory import MemoryStore
from shale.telemetry.metrics import Metrics
from shale.types import WorkerClaim
from shale_compactor.worker.claims import owns
from shale_compactor.worker.heartbeats import next_beat_s
from tests.unit.compactor.harness import Harness, eventually
from tests.unit.compactor.values import S, entry, manifest, spec, statuses, tree, ulid

pytestmark = pytest.mark.anyio
JOB = entry(9, spec((2, 1), to=0), S.SCHEDULED)


@pytest.fixture
def anyio_backend():
    return "asyncio"


async def scheduled(*entries, store=MemoryStore):
    harness = await Harness(manifest(tree((2, 1)), a=tree((4, 3))), store=store).create()
    await harness.compactions.load_or_create()
    await harness.edit(*(entries or (JOB,)))
    return harness


async def run_until(worker, condition):
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await eventually(condition)
        tasks.cancel_scope.cancel()


@pytest.mark.fault("F4.23")
async def test_without_compactions_a_worker_waits():
    harness = await Harness().create()
    assert await harness.worker().claim() == []


async def test_a_job_is_claimed_executed_and_handed_over():
    harness = await scheduled()
    worker = harness.worker()

    async def is_compacted():
        return statuses(await harness.stored()) == {9: S.COMPACTED}

    await run_until(worker, is_compacted)
    (done,) = (await harness.stored()).entries
    assert done.worker.worker_id == worker.id
    assert len(done.output_ssts) == 1
    assert done.ctx is None
    (job,) = harness.executor.jobs
    assert [view.id.ms for view in job.l0] == [2, 1]
    assert job.is_dest_last_run


async def test_a_worker_for_one_job_leaves_the_others_alone():
    """Older ones too."""
    harness = await scheduled(entry(8, spec((4, 3), to=0, segment=b"a"), S.SCHEDULED), JOB)
    worker = harness.worker(only=frozenset({JOB.id}))
    assert [job.plan.id for job in await worker.claim()] == [JOB.id]
    assert await worker.claim() == []
    assert statuses(await harness.stored()) == {8: S.SCHEDULED, 9: S.RUNNING}


@pytest.mark.fault("F4.6")
async def test_two_workers_never_own_one_job():
    harness = await scheduled()
    first, second = harness.worker(2), harness.worker(3)
    claimed = []

    async def claim(worker):
        claimed.append(await worker.claim())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(claim, first)
        tasks.start_soon(claim, second)
    assert sorted(map(len, claimed)) == [0, 1]


class LosesAnAnswer(MemoryStore):
    """A store that writes the next compactions file and then reports a conflict without metadata."""

    def __init__(self, clock):
        super().__init__(clock, supports_attributes=False)
        self.is_armed = False

    async def put(self, key, data, **options):
        etag = await super().put(key, data, **options)
        if self.is_armed and "/compactions/" in key:
            self.is_armed = False
            raise AlreadyExists(f"{key} exists")
        return etag


async def test_a_lost_answer_to_a_claim_counts_as_claimed():
    """The worker's own write looks like a conflict, and the entry already names the worker.

    Source: docs/reference/protocol.md 1.5.
    """
    harness = await scheduled(store=LosesAnAnswer)
    worker = harness.worker()
    harness.store.is_armed = True
    (job,) = await worker.claim()
    assert not harness.store.is_armed
    assert job.plan.id == JOB.id


async def test_a_claim_whose_sources_are_gone_is_released():
    harness = await scheduled(entry(9, spec((7,), to=0), S.SCHEDULED))
    worker = harness.worker()
    assert await worker.claim() == []
    assert statuses(await harness.stored()) == {9: S.SCHEDULED}
    before = (await harness.compactions.read_latest()).id
    assert await worker.claim() == []
    assert (await harness.compactions.read_latest()).id == before, "not claimed again at once"


async def test_a_stopping_worker_gives_its_claims_back():
    harness = await scheduled()
    harness.executor.gate = anyio.Event()
    worker = harness.worker()

    async def is_running():
        return bool(harness.executor.jobs)

    await run_until(worker, is_running)
    (free,) = (await harness.stored()).entries
    assert (free.status, free.worker) == (S.SCHEDULED, None)
    assert free.ctx is not None, "the plan is kept"
    assert harness.executor.cancelled == 1


async def test_a_failed_job_is_released_and_waits_before_the_next_try():
    harness = await scheduled()
    harness.executor.error = UnavailableError("no answer")
    metrics = Metrics()
    worker = harness.worker(metrics=metrics, name="w")

    async def was_released():
        return bool(harness.executor.jobs) and statuses(await harness.stored()) == {9: S.SCHEDULED}

    await run_until(worker, was_released)
    assert await worker.claim() == []
    harness.clock.advance(2)
    harness.executor.error = None
    assert len(await worker.claim()) == 1
    value = metrics.registry.get_sample_value
    labels = {"db": "", "error_type": "network", "retryable": "true"}
    assert value("slatedb_compaction_errors_total", labels) == 1
    assert value("slatedb_compactor_running", {"db": "", "worker": "w"}) == 0


async def test_corrupt_input_ends_the_job_and_is_counted():
    harness = await scheduled()
    harness.executor.error = CorruptionError("broken")
    metrics = Metrics()
    worker = harness.worker(metrics=metrics, name="w")

    async def has_failed():
        return statuses(await harness.stored()) == {9: S.FAILED}

    await run_until(worker, has_failed)
    assert await worker.claim() == []
    value = metrics.registry.get_sample_value
    labels = {"db": "", "error_type": "corruption", "retryable": "false"}
    assert value("slatedb_compaction_errors_total", labels) == 1
    assert value("slatedb_corruption_total", {"db": "", "resource": "compacted"}) == 1
    assert value("slatedb_compactor_running", {"db": "", "worker": "w"}) == 0


@pytest.mark.fault("F4.3")
async def test_a_worker_that_lost_its_job_drops_the_result():
    """T6.d: another worker reclaimed the job during a stall."""
    harness = await scheduled()
    harness.executor.gate = anyio.Event()
    metrics = Metrics()
    worker = harness.worker(metrics=metrics, name="w")
    other = entry(9, JOB.spec, S.RUNNING, worker=WorkerClaim(worker_id="other", last_heartbeat_ms=0))

    async def runs():
        return bool(harness.executor.jobs)

    async def was_cancelled():
        return harness.executor.cancelled > 0

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await eventually(runs)
        await harness.edit(other)
        await worker.client.heartbeat()
        await eventually(was_cancelled)
        tasks.cancel_scope.cancel()
    assert (await harness.stored()).entries == (other,)
    value = metrics.registry.get_sample_value
    assert value("slatedb_compactor_running", {"db": "", "worker": "w"}) == 0
    for result in ("completed", "failed"):
        labels = {"db": "", "size_class": "lt_64m", "result": result}
        assert value("slatedb_compaction_duration_seconds_count", labels) == 0, "a cancelled job counts neither way"


async def test_a_result_that_comes_too_late_changes_nothing():
    harness = await scheduled()
    worker = harness.worker()
    (job,) = await worker.claim()
    other = entry(9, JOB.spec, S.RUNNING, worker=WorkerClaim(worker_id="other", last_heartbeat_ms=0))
    await harness.edit(other)
    await worker.execute(job)
    assert (await harness.stored()).entries == (other,)


@pytest.mark.fault("F4.4")
async def test_a_reclaimed_job_is_stopped_before_the_same_worker_may_claim_it():
    harness = await scheduled()
    harness.executor.gate = anyio.Event()
    worker = harness.worker()
    (job,) = await worker.claim()
    await harness.edit(JOB)
    assert await worker.claim() == []
    assert job.scope.cancel_called
    await worker.execute(job)
    (again,) = await worker.claim()
    assert again is not job


async def test_heartbeats_carry_time_and_progress():
    harness = await scheduled()
    worker = harness.worker()
    (job,) = await worker.claim()
    await harness.executor.run(job.plan, job.progress)
    harness.clock.advance(10)
    await worker.client.heartbeat()
    (stored,) = (await harness.stored()).entries
    assert owns(stored, worker.id)
    assert stored.worker.last_heartbeat_ms == harness.clock.ms
    assert stored.ctx == job.progress.context()


async def test_capacity_bounds_claims():
    harness = await scheduled(JOB, entry(10, spec((4, 3), to=1, segment=b"a"), S.SCHEDULED))
    worker = harness.worker(max_concurrent_compactions=1)
    assert [job.plan.id for job in await worker.claim()] == [ulid(9)]
    assert await worker.claim() == []


async def test_looks_for_jobs_are_spread_out():
    """Polls are half to one and a half intervals apart, so that workers do not stay synchronized."""
    harness = await scheduled()
    waits = []

    class Noted(WakeEvent):
        async def wait_for(self, seconds):
            waits.append(seconds)
            if len(waits) == 200:
                tasks.cancel_scope.cancel()
            await anyio.lowlevel.checkpoint()
            return False

    worker = harness.worker(compactions_poll_interval_s=4.0, jobs_ready=Noted())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
    assert 2.0 <= min(waits) < 2.4
    assert 5.6 < max(waits) <= 6.0


async def test_a_smaller_capacity_counts_from_the_next_look():
    harness = await scheduled(JOB, entry(10, spec((4, 3), to=1, segment=b"a"), S.SCHEDULED))
    worker = harness.worker()
    worker.reconfigure(replace(worker.options, max_concurrent_compactions=1))
    assert len(await worker.claim()) == 1
    assert await worker.claim() == []
    worker.reconfigure(replace(worker.options, max_concurrent_compactions=2))
    assert len(await worker.claim()) == 1


@pytest.mark.parametrize(("last_s", "chance", "due_s"), [(100.0, 0.0, 110.0), (100.0, 1.0, 108.5)])
def test_beats_are_at_a_fixed_rate_from_beginning_to_beginning(last_s, chance, due_s):
    assert next_beat_s(last_s, 10.0, chance) == due_s
