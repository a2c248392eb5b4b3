"""Compactions on Spark write the same rows as local ones, each once, also if processes die."""

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from pyspark.sql import SparkSession

from shale.errors import MergeOperatorMissing
from shale.types import FLAG_MERGE, CompactionContext, Entry, Sst
from shale_compactor.execution.progress import JobProgress
from tests.integration.spark.compaction.jobs import OPTIONS, JobDatabase

pytestmark = pytest.mark.anyio
FILTERS = "tests.integration.spark.compaction.filters"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def place(tmp_path: Path, spark: SparkSession) -> Iterator[JobDatabase]:
    made = JobDatabase(tmp_path, spark)
    yield made
    made.forget_marks()


async def test_it_writes_what_a_local_executor_writes(place: JobDatabase) -> None:
    """In more tasks than cores, with the progress of a local job."""
    place.ranges = 3
    job = await place.job()
    seen: list[Sst] = []
    progress = place.progress(seen.append)
    outputs = await place.executor().run(job, progress)
    assert len(progress.ranges) == 3
    assert sorted(seen, key=lambda each: each.info.first_entry or b"") == [*outputs]
    assert outputs == progress.outputs()
    assert max(each.info.data_len for each in outputs) < 2 * OPTIONS.max_sst_size_bytes
    assert await place.rows(outputs) == await place.expected(job)
    assert 0.8 * job.input_bytes < progress.read_bytes < 1.3 * job.input_bytes
    assert progress.merged_bytes > 0
    assert progress.rework_bytes == 0


async def test_a_killed_task_resumes_after_its_last_finished_sst(place: JobDatabase) -> None:
    """Spark starts it again; finished SSTs are neither lost nor written again."""
    job = await place.job()
    seen: list[Sst] = []
    progress = place.progress(seen.append)
    outputs = await place.executor(f"{FILTERS}:DiesOnce").run(job, progress)
    assert sorted(seen, key=lambda each: each.info.first_entry or b"") == [*outputs]
    orphans = place.sst_count() - len(job.l0) - len(outputs)
    assert 0 <= orphans <= 2 * len(progress.ranges), "those that were under way when their process died"
    assert await place.rows(outputs) == await place.expected(job)


async def test_a_cancelled_job_stands_still_and_another_worker_goes_on(place: JobDatabase) -> None:
    """As after a reclaim by the coordinator: no task may write while another worker claims the job."""
    job = await place.job()
    begun = anyio.Event()
    progress = place.progress(lambda _sst: begun.set() if all(_finished(progress)) else None)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(place.executor(f"{FILTERS}:HangsOnce").run, job, progress)
            await begun.wait()
            tasks.cancel_scope.cancel()
    context = progress.context()
    assert context is not None
    before = place.sst_count()
    assert not place.spark.sparkContext.statusTracker().getActiveJobsIds()
    resumed = JobProgress(retention_min_seq=context.retention_min_seq, resumed=context)
    outputs = await place.executor().run(job, resumed)
    assert _extends(context, resumed.context())
    assert place.sst_count() == before + len(outputs) - len(progress.outputs())
    assert await place.rows(outputs) == await place.expected(job)


def _finished(progress: JobProgress) -> list[bool]:
    """Return the ranges that have a finished SST."""
    return [progress.last_output(index) is not None for index in range(len(progress.ranges))]


def _extends(before: CompactionContext, after: CompactionContext | None) -> bool:
    assert after is not None
    pairs = zip(before.subcompactions, after.subcompactions, strict=True)
    return all(new.output_ssts[: len(old.output_ssts)] == old.output_ssts for old, new in pairs)


async def test_what_no_attempt_can_avoid_is_raised_as_it_is(place: JobDatabase) -> None:
    """Immediately, for any number of attempts in Spark's settings."""
    job = await place.job(Entry(b"key0000001", b"+1", 10**6, FLAG_MERGE))
    with pytest.raises(MergeOperatorMissing):
        await place.executor(passthrough=False).run(job, place.progress())
