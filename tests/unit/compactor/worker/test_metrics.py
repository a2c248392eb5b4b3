"""The metrics of docs/how-to/monitor.md that a worker updates, and when (one database in memory)."""

from dataclasses import replace

import pytest

from shale.telemetry.metrics import Metrics
from shale.types import EVERYTHING, CompactionContext, KeyRange, Seq, Subcompaction, Tree
from shale_compactor.execution.progress import JobProgress
from tests.unit.compactor.harness import Harness
from tests.unit.compactor.values import S, entry, manifest, spec, sst, tree, view

pytestmark = pytest.mark.anyio
JOB = entry(9, spec((2, 1), to=0), S.SCHEDULED)
INPUT_BYTES = 200
RESUMED = CompactionContext(
    subcompactions=(
        Subcompaction(range=KeyRange.half_open(None, b"m"), output_ssts=(sst(50, size=60),)),
        Subcompaction(range=KeyRange.half_open(b"m", None), output_ssts=()),
    ),
    retention_min_seq=Seq(0),
)


@pytest.fixture
def anyio_backend():
    return "asyncio"


class Scraped:
    """The metrics of one worker, as Prometheus scrapes them."""

    def __init__(self):
        self.metrics = Metrics()

    def __call__(self, name, **labels):
        self.metrics.refresh()
        value = self.metrics.registry.get_sample_value(name, {"db": "", **labels})
        assert value is not None, name
        return value


class ByHand:
    """An executor that the test drives step by step."""

    def __init__(self, harness, seen, steps):
        self.harness = harness
        self.seen = seen
        self.steps = steps

    async def run(self, job, progress: JobProgress):
        if not progress.is_planned:
            progress.plan([EVERYTHING])
        await self.steps(self.harness, self.seen, progress)
        return progress.outputs()


async def execute(steps, job=JOB):
    """Claim and execute one job; return the metrics."""
    harness = await Harness(manifest(tree((2, 1)))).create()
    await harness.compactions.load_or_create()
    await harness.edit(job)
    seen = Scraped()
    worker = harness.worker(metrics=seen.metrics, executor=ByHand(harness, seen, steps), name="w")
    (running,) = await worker.claim()
    await worker.execute(running)
    return seen


async def test_a_job_from_claim_to_finish():
    async def steps(harness, seen, progress):
        assert seen("slatedb_compactor_jobs_claimed_total") == 1
        assert seen("slatedb_compactor_running", worker="w") == 1
        assert seen("slatedb_compaction_inflight_input_ssts") == 2
        assert (seen("slatedb_compaction_phase", phase="read"), seen("slatedb_compaction_phase", phase="write")) == (
            1,
            0,
        )
        assert seen("slatedb_compaction_progress_ratio") == 0
        assert seen("slatedb_compaction_estimated_completion_timestamp_seconds") == 0
        harness.clock.advance(10)
        progress.note_read(INPUT_BYTES // 4)
        assert [seen("slatedb_compaction_phase", phase=phase) for phase in ("read", "write")] == [1, 0]
        progress.note_rows(10)
        assert (seen("slatedb_compaction_phase", phase="read"), seen("slatedb_compaction_phase", phase="write")) == (
            0,
            1,
        )
        assert seen("slatedb_compaction_progress_ratio") == 0.25
        left_s = seen("slatedb_compaction_estimated_completion_timestamp_seconds") - harness.clock.ms / 1000
        assert left_s == pytest.approx(30)
        assert seen("slatedb_compaction_input_bytes_total") == INPUT_BYTES // 4
        progress.add(0, sst(60, size=120, keys=(b"a", b"m")))
        assert seen("slatedb_compactor_ssts_written_total", worker="w") == 1
        assert seen("slatedb_compaction_ssts_processed_total") == 0
        harness.clock.advance(5)

    seen = await execute(steps)
    assert seen("slatedb_compactor_output_bytes_total", worker="w") == 120
    assert seen("slatedb_compaction_ssts_processed_total") == 2
    assert seen("slatedb_compaction_duration_seconds_sum", size_class="lt_64m", result="completed") == 15
    assert seen("slatedb_compaction_duration_seconds_count", size_class="lt_64m", result="completed") == 1
    for gauge in ("inflight_input_ssts", "progress_ratio", "estimated_completion_timestamp_seconds"):
        assert seen(f"slatedb_compaction_{gauge}") == 0
    assert seen("slatedb_compactor_running", worker="w") == 0
    assert seen("slatedb_compaction_phase", phase="write") == 0
    assert seen("slatedb_compaction_recovered_jobs_total") == 0


async def test_a_job_that_goes_on_where_another_worker_stopped():
    async def steps(harness, seen, progress):
        assert seen("slatedb_compaction_recovered_jobs_total") == 1
        assert seen("slatedb_compaction_recovered_bytes_total") == 60
        assert seen("slatedb_compaction_progress_ratio") == 0.3
        assert seen("slatedb_compaction_recovery_duration_seconds_count") == 0
        harness.clock.advance(4)
        progress.note_rows(40)
        progress.note_rows(40)
        assert seen("slatedb_compaction_recovery_duration_seconds_sum") == 4
        assert seen("slatedb_compaction_recovery_duration_seconds_count") == 1
        progress.rework_bytes += 33

    seen = await execute(steps, replace(JOB, ctx=RESUMED))
    assert seen("slatedb_compaction_rework_bytes_total") == 33


async def test_the_time_of_the_last_heartbeat():
    harness = await Harness(manifest(tree((2, 1)))).create()
    await harness.compactions.load_or_create()
    await harness.edit(JOB)
    seen = Scraped()
    worker = harness.worker(metrics=seen.metrics, name="w")
    await worker.claim()
    assert seen("slatedb_compactor_worker_heartbeat_timestamp_seconds", worker="w") == harness.clock.ms / 1000
    harness.clock.advance(3)
    await worker.client.heartbeat()
    assert seen("slatedb_compactor_worker_heartbeat_timestamp_seconds", worker="w") == harness.clock.ms / 1000


async def test_a_failed_job_is_timed_as_failed():
    async def steps(harness, seen, progress):
        harness.clock.advance(2)
        raise OSError("disk")

    seen = await execute(steps)
    assert seen("slatedb_compaction_duration_seconds_sum", size_class="lt_64m", result="failed") == 2
    assert seen("slatedb_compaction_errors_total", error_type="network", retryable="true") == 1
    assert seen("slatedb_compactor_running", worker="w") == 0
    assert seen("slatedb_compaction_inflight_input_ssts") == 0


async def test_inputs_count_as_processed_when_the_output_has_passed_them():
    """They count once, and those that an earlier attempt has passed do not count again."""

    async def steps(harness, seen, progress):
        assert seen("slatedb_compaction_ssts_processed_total") == 0
        progress.add(0, sst(60, keys=(b"c", b"k")))
        assert seen("slatedb_compaction_ssts_processed_total") == 1
        progress.add(0, sst(61, keys=(b"l", b"m")))
        assert seen("slatedb_compaction_ssts_processed_total") == 1

    ends = (b"z", b"k", b"b")
    inputs = Tree(l0=tuple(view(3 - place, keys=(b"a", end)) for place, end in enumerate(ends)))
    passed = (Subcompaction(range=KeyRange(), output_ssts=(sst(50, keys=(b"a", b"b")),)),)
    context = CompactionContext(subcompactions=passed, retention_min_seq=Seq(0))
    harness = await Harness(manifest(inputs)).create()
    await harness.compactions.load_or_create()
    await harness.edit(entry(9, spec((3, 2, 1), to=0), S.SCHEDULED, ctx=context))
    seen = Scraped()
    worker = harness.worker(metrics=seen.metrics, executor=ByHand(harness, seen, steps))
    (running,) = await worker.claim()
    await worker.execute(running)
    assert seen("slatedb_compaction_ssts_processed_total") == 2
