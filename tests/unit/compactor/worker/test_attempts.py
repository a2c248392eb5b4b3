"""Attempts at a job, counted over all workers (docs/reference/protocol.md 6.9, "Failure")."""

import pytest

from shale.compaction.records import Attempt, AttemptResult, CompactionRecord
from shale.errors import CorruptionError, UnavailableError
from shale.format.compactions import decode_compactions, encode_compactions
from shale.telemetry.metrics import Metrics
from shale.types import Compaction, Compactions
from tests.unit.compactor.harness import Harness
from tests.unit.compactor.values import S, entry, manifest, spec, statuses, tree

pytestmark = pytest.mark.anyio
JOB = entry(9, spec((2, 1), to=0), S.SCHEDULED)
LOST = Attempt(worker_id="killed", ended_ms=5, result=AttemptResult.LOST, error="its worker sent no heartbeat")


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
async def harness():
    harness = await Harness(manifest(tree((2, 1)))).create()
    await harness.compactions.load_or_create()
    await harness.edit(JOB)
    return harness


async def attempt(worker):
    """Let a worker claim and execute what it may; return the number of jobs."""
    jobs = await worker.claim()
    for job in jobs:
        await worker.execute(job)
    return len(jobs)


async def record_of(harness):
    return await harness.compactions.records.read(JOB.id)


async def test_an_error_that_will_not_change_ends_the_job_at_its_first_attempt(harness):
    harness.executor.error = ZeroDivisionError("in a filter")
    metrics = Metrics()
    worker = harness.worker(metrics=metrics)
    assert await attempt(worker) == 1
    (failed,) = (await harness.stored()).entries
    assert (failed.status, failed.worker.worker_id, failed.ctx) == (S.FAILED, worker.id, None)
    record = await record_of(harness)
    assert (record.status, record.error, record.attempts_count) == (
        S.FAILED,
        "ZeroDivisionError: in a filter",
        1,
    )
    assert (record.spec, record.attempts[0].worker_id) == (JOB.spec, worker.id)
    assert metrics.registry.get_sample_value("slatedb_compactor_jobs_failed_total", {"db": ""}) == 1


async def test_attempts_count_over_all_workers(harness):
    harness.executor.error = UnavailableError("no answer")
    for seed in range(2, 5):
        assert statuses(await harness.stored()) == {9: S.SCHEDULED}
        assert await attempt(harness.worker(seed, max_job_attempts=3)) == 1
        harness.clock.advance(10)
    assert statuses(await harness.stored()) == {9: S.FAILED}
    record = await record_of(harness)
    assert record.error == "3 attempts failed, the last with UnavailableError: no answer"
    assert [each.result for each in record.attempts] == [AttemptResult.FAILED] * 3


async def test_the_delay_counts_for_all_workers(harness):
    harness.executor.error = UnavailableError("no answer")
    assert await attempt(harness.worker(2)) == 1
    other = harness.worker(3)
    assert await attempt(other) == 0, "another worker waits, too"
    harness.clock.advance(1)
    assert await attempt(other) == 1
    harness.clock.advance(1)
    assert await attempt(harness.worker(4)) == 0, "the second delay is longer"


async def test_another_clock_that_is_ahead_cannot_delay_a_job_for_longer_than_the_limit(harness):
    await harness.compactions.records.change(
        JOB.id, lambda record: record.with_attempt(LOST, not_before_ms=harness.clock.ms + 10**9)
    )
    worker = harness.worker(retry_delay_max_s=60.0)
    assert await attempt(worker) == 0
    harness.clock.advance(61)
    assert await attempt(worker) == 1


async def test_a_job_that_kills_its_workers_ends_too(harness):
    for _ in range(3):
        await harness.compactions.records.change(JOB.id, lambda record: record.with_attempt(LOST))
    worker = harness.worker(max_job_attempts=3)
    assert await attempt(worker) == 0
    assert harness.executor.jobs == []
    assert statuses(await harness.stored()) == {9: S.FAILED}
    record = await record_of(harness)
    assert (record.status, record.spec, record.finished_ms) == (S.FAILED, JOB.spec, harness.clock.ms)
    assert record.error == "3 attempts did not end, the last with its worker sent no heartbeat"
    assert record.attempts_count == 3, "this worker has not tried"


def test_a_lost_attempt_that_left_new_output_does_not_count():
    record = CompactionRecord(id=JOB.id)
    for outputs in (0, 3, 3, 5):
        made = Attempt(worker_id="w", ended_ms=1, result=AttemptResult.LOST, outputs=outputs)
        record = record.with_attempt(made)
    assert (record.attempts_count, record.spent) == (4, 2)


async def test_attempts_outlive_a_coordinator_that_writes_the_file_again(harness):
    """SlateDB keeps only the fields of its schema."""
    harness.executor.error = UnavailableError("no answer")
    await attempt(harness.worker(2))
    stored = await harness.compactions.load()

    def again(current):
        plain = decode_compactions(encode_compactions(current.value))
        entries = tuple(Compaction(id=each.id, spec=each.spec, status=each.status) for each in plain.entries)
        return Compactions(compactor_epoch=plain.compactor_epoch + 1, entries=entries)

    await stored.apply(again)
    harness.clock.advance(10)
    (job,) = await harness.worker(3).claim()
    assert job.attempt == 2


async def test_a_record_that_cannot_be_read_is_no_record(harness):
    await harness.store.put(harness.compactions.records.key(JOB.id), b"not JSON")
    assert await attempt(harness.worker()) == 1
    assert statuses(await harness.stored()) == {9: S.COMPACTED}


async def test_a_coordinator_that_restores_a_failed_job_gets_no_further_attempt_of_this_worker(harness):
    """SlateDB's keeps its own copy of the entry, and takes it back from a worker without heartbeats."""
    harness.executor.error = CorruptionError("bad block")
    worker = harness.worker()
    await attempt(worker)
    await harness.edit(JOB)
    assert await attempt(worker) == 0
    assert len(harness.executor.jobs) == 1
