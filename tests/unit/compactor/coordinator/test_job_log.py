"""The records that a coordinator keeps, and its estimate of lost work (docs/reference/protocol.md 6.16)."""

from dataclasses import replace

import pytest

from shale.compaction.outcome import CANCELLED, UNEXPLAINED
from shale.compaction.records import AttemptResult, CompactionKind
from shale.concurrency.signal import WakeEvent
from shale.errors import CorruptionError, UnavailableError
from shale.store.memory import MemoryStore
from shale.telemetry.metrics import Metrics
from shale.types import CompactionContext, KeyRange, Seq, Subcompaction, WorkerClaim
from tests.unit.compactor.harness import Harness
from tests.unit.compactor.values import S, entry, manifest, spec, sst, statuses, tree, ulid

pytestmark = pytest.mark.anyio
FULL = tree((4, 3, 2, 1))


@pytest.fixture
def anyio_backend():
    return "asyncio"


async def database(l0=FULL, **options):
    harness = await Harness(manifest(l0)).create()
    return harness, await harness.started(**options)


async def only_job(harness):
    (job,) = (await harness.stored()).entries
    return job


async def record_of(harness, job):
    return await harness.compactions.records.read(job)


async def test_the_record_of_a_completed_job_has_kind_and_times():
    harness, coordinator = await database()
    await coordinator.run_round()
    job = await only_job(harness)
    worker = harness.worker()
    (running,) = await worker.claim()
    harness.clock.advance(1)
    await coordinator.run_round()
    started_ms = harness.clock.ms
    harness.clock.advance(7)
    await worker.execute(running)
    await coordinator.run_round()
    record = await record_of(harness, job.id)
    assert (record.kind, record.status, record.spec) == (CompactionKind.INTERNAL, S.COMPLETED, job.spec)
    assert (record.started_ms, record.finished_ms) == (started_ms, harness.clock.ms)
    assert (record.output_ssts, record.error, record.attempts_count) == (1, None, 0)


async def test_a_refused_submission_keeps_its_rule():
    harness, coordinator = await database()
    await harness.edit(entry(9, spec((9,), to=7)))
    await coordinator.run_round()
    record = await record_of(harness, ulid(9))
    assert record.status is S.FAILED
    assert record.error.startswith("V4: sources that do not exist")


async def test_a_submission_of_a_tool_that_writes_no_record_is_external():
    harness, coordinator = await database(tree((2, 1)))
    await harness.edit(entry(9, spec((2, 1), to=0)))
    await coordinator.run_round()
    assert (await record_of(harness, ulid(9))).kind is CompactionKind.EXTERNAL
    await harness.claim_and_finish()
    await coordinator.run_round()
    record = await record_of(harness, ulid(9))
    assert (record.kind, record.status) == (CompactionKind.EXTERNAL, S.COMPLETED)


async def test_a_failed_job_frees_its_sources_and_is_not_proposed_again_at_once():
    harness, coordinator = await database(cancel_cooldown_s=60.0)
    await coordinator.run_round()
    job = await only_job(harness)
    harness.executor.error = CorruptionError("bad block")
    await harness.claim_and_finish()
    await coordinator.run_round()
    assert statuses(await harness.stored()) == {job.id.ms: S.FAILED}
    # Another compaction of the same sources is valid at once.
    again = replace(job, id=ulid(job.id.ms + 1), status=S.SUBMITTED, worker=None)
    await harness.edit(again)
    await coordinator.run_round()
    assert statuses(await harness.stored())[again.id.ms] is S.SCHEDULED
    await harness.edit(replace(again, status=S.FAILED))
    harness.clock.advance(61)
    await coordinator.run_round()
    harness.clock.advance(61)
    await coordinator.run_round()
    assert S.SCHEDULED in statuses(await harness.stored()).values(), "the policy proposes it again later"


async def test_a_cancelled_job_keeps_the_time_of_its_start():
    harness, coordinator = await database()
    await coordinator.run_round()
    job = await only_job(harness)
    await harness.worker().claim()
    await coordinator.run_round()
    started_ms = harness.clock.ms
    harness.clock.advance(5)
    await harness.edit(replace(job, status=S.FAILED))
    await coordinator.run_round()
    record = await record_of(harness, job.id)
    assert (record.error, record.started_ms, record.finished_ms) == (CANCELLED, started_ms, harness.clock.ms)


async def test_a_failure_is_no_cancellation():
    harness, coordinator = await database()
    await coordinator.run_round()
    job = await only_job(harness)
    harness.executor.error = CorruptionError("bad block")
    await harness.claim_and_finish()
    await coordinator.run_round()
    record = await record_of(harness, job.id)
    assert (record.error, record.kind) == ("CorruptionError: bad block", CompactionKind.INTERNAL)


async def test_a_failure_whose_worker_could_not_write_its_record_has_one():
    harness, coordinator = await database()
    await coordinator.run_round()
    job = await only_job(harness)
    harness.executor.error = CorruptionError("bad block")
    await harness.claim_and_finish()
    await harness.store.delete(harness.compactions.records.key(job.id))
    await coordinator.run_round()
    record = await record_of(harness, job.id)
    assert (record.status, record.spec, record.finished_ms) == (S.FAILED, job.spec, harness.clock.ms)
    assert record.error == UNEXPLAINED


async def reclaimed(harness, coordinator, context):
    """Let a worker publish this progress once and go silent; return the job."""
    await coordinator.run_round()
    job = await only_job(harness)
    claim = WorkerClaim(worker_id="killed", last_heartbeat_ms=harness.clock.ms)
    await harness.edit(replace(job, status=S.RUNNING, worker=claim))
    await harness.watch(coordinator, 10)
    beat = replace(claim, last_heartbeat_ms=harness.clock.ms)
    await harness.edit(replace(job, status=S.RUNNING, worker=beat, ctx=context))
    await harness.watch(coordinator, 32)
    await coordinator.run_round()
    assert statuses(await harness.stored()) == {job.id.ms: S.SCHEDULED}
    return job


def progress(*outputs):
    ranges = (Subcompaction(range=KeyRange(), output_ssts=outputs),)
    return CompactionContext(subcompactions=ranges, retention_min_seq=Seq(0))


async def test_a_lost_worker_is_an_attempt():
    harness, coordinator = await database()
    before_ms = harness.clock.ms
    job = await reclaimed(harness, coordinator, progress(sst(77)))
    record = await record_of(harness, job.id)
    assert before_ms <= record.started_ms < harness.clock.ms - 30_000, "when it was first seen running"
    (attempt,) = record.attempts
    assert (attempt.worker_id, attempt.result, attempt.outputs) == ("killed", AttemptResult.LOST, 1)


async def test_the_worker_of_the_same_process_is_woken_after_the_record():
    """Else a job that kills this process at once would never be counted, and never end."""

    class Observed(WakeEvent):
        def notify(self):
            known.append([key for key in harness.store.objects if "compaction_records" in key])
            super().notify()

    known = []
    harness = await Harness(manifest(FULL)).create()
    coordinator = await harness.started(jobs_ready=Observed())
    job = await reclaimed(harness, coordinator, None)
    assert known == [[], [harness.compactions.records.key(job.id)]], "scheduled, then reclaimed"


def rework(metrics):
    return metrics.registry.get_sample_value("slatedb_compaction_rework_bytes_total", {"db": ""})


async def test_the_work_of_a_killed_worker_is_estimated_from_its_own_rate():
    """1,000 bytes in 11 s, and a death somewhere in the 10 s after the last heartbeat."""
    metrics = Metrics()
    harness, coordinator = await database(metrics=metrics)
    await reclaimed(harness, coordinator, progress(sst(77, 1000)))
    assert 400 <= rework(metrics) <= 600


async def test_without_output_the_rate_is_that_of_the_next_attempt():
    metrics = Metrics()
    harness, coordinator = await database(metrics=metrics)
    await reclaimed(harness, coordinator, None)
    assert rework(metrics) == 0
    worker = harness.worker()
    (running,) = await worker.claim()
    await harness.watch(coordinator, 10)
    await worker.execute(running)
    await coordinator.run_round()
    made = (await harness.manifest()).tree.compacted[0].ssts[0].sst.estimated_size_bytes
    assert rework(metrics) > made


class WithoutRecords(MemoryStore):
    """A store that refuses records."""

    async def put(self, key, data, **options):
        if "/compaction_records/" in key:
            raise UnavailableError("not here")
        return await super().put(key, data, **options)


async def test_a_record_that_cannot_be_written_stops_nothing():
    harness = await Harness(manifest(FULL), store=WithoutRecords).create()
    coordinator = await harness.started()
    await coordinator.run_round()
    await harness.claim_and_finish()
    await coordinator.run_round()
    assert len((await harness.manifest()).tree.compacted) == 1
