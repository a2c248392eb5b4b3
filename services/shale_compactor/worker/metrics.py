"""Metrics of a worker (docs/how-to/monitor.md).

Gauges count a running job from its claim to its end.  A job whose result was handed over counts as completed, one that
raised counts as failed; a cancelled or lost one counts as neither.
"""

from collections.abc import Mapping

from shale.env import Env
from shale.errors import CorruptionError
from shale.telemetry.error_types import ErrorType, error_type_of, is_retryable
from shale.telemetry.metrics import Metrics
from shale.types import Ulid
from shale_compactor.worker.progress_checks import DamagedProgress
from shale_compactor.worker.running_job import RunningJob

_MIB = 1024 * 1024

_SIZE_CLASSES = ((64 * _MIB, "lt_64m"), (1024 * _MIB, "lt_1g"), (16 * 1024 * _MIB, "lt_16g"))


class WorkerMetrics:
    """Counters and gauges of one worker.  ``jobs``: the running jobs, read at each scrape."""

    def __init__(self, metrics: Metrics, env: Env, worker: str, jobs: Mapping[Ulid, RunningJob]) -> None:
        self._clock = env.clock
        self._jobs = jobs
        self.abandoned = metrics.counter("slatedb_compactor_jobs_failed_total").inc
        self.claimed = metrics.counter("slatedb_compactor_jobs_claimed_total").inc
        self._polls = metrics.gauge("slatedb_compactor_worker_up").set
        self._running = metrics.gauge("slatedb_compactor_running", worker=worker)
        self._output_bytes = metrics.counter("slatedb_compactor_output_bytes_total", worker=worker).inc
        self._ssts_written = metrics.counter("slatedb_compactor_ssts_written_total", worker=worker).inc
        self._heartbeat = metrics.gauge("slatedb_compactor_worker_heartbeat_timestamp_seconds", worker=worker).set
        self.read = metrics.counter("slatedb_compaction_input_bytes_total").inc
        self._ssts_processed = metrics.counter("slatedb_compaction_ssts_processed_total").inc
        self._inflight_ssts = metrics.gauge("slatedb_compaction_inflight_input_ssts")
        self._recovered_jobs = metrics.counter("slatedb_compaction_recovered_jobs_total").inc
        self._recovered_bytes = metrics.counter("slatedb_compaction_recovered_bytes_total").inc
        self._recovery_seconds = metrics.histogram("slatedb_compaction_recovery_duration_seconds").observe
        self._rework_bytes = metrics.counter("slatedb_compaction_rework_bytes_total").inc
        self._progress_ratio = metrics.gauge("slatedb_compaction_progress_ratio").set
        self._completion = metrics.gauge("slatedb_compaction_estimated_completion_timestamp_seconds").set
        self._phases = {name: metrics.gauge("slatedb_compaction_phase", phase=name) for name in ("read", "write")}
        self._durations = {
            (size_class, result): metrics.histogram(
                "slatedb_compaction_duration_seconds", size_class=size_class, result=result
            )
            for size_class in (*(name for _, name in _SIZE_CLASSES), "ge_16g")
            for result in ("completed", "failed")
        }
        self._corrupt_sst = metrics.counter("slatedb_corruption_total", resource="compacted").inc
        self._corrupt_progress = metrics.counter("slatedb_corruption_total", resource="compactions").inc
        name = "slatedb_compaction_errors_total"
        self._errors = {
            (error_type, retryable): metrics.counter(name, error_type=error_type.value, retryable=retryable).inc
            for error_type in ErrorType
            for retryable in ("true", "false")
        }
        metrics.before_scrape(self.observe)

    def polls(self, is_polling: bool) -> None:
        """Set whether the database is polled for jobs."""
        self._polls(int(is_polling))

    def started(self, job: RunningJob) -> None:
        """Count the start of a claimed job."""
        self._running.inc()
        self._inflight_ssts.inc(len(job.plan.views))
        if job.is_resumed:
            self._recovered_jobs()
            self._recovered_bytes(job.progress.recovered_bytes)

    def first_row(self, claimed_s: float, *, is_resumed: bool) -> None:
        """Observe the recovery time when a resumed job has produced its first new row."""
        if is_resumed:
            self._recovery_seconds(self._clock.monotonic_s() - claimed_s)

    def wrote(self, job: RunningJob, data_bytes: int) -> None:
        """Count a stored output SST, and the inputs that it has passed."""
        self._ssts_written()
        self._output_bytes(data_bytes)
        self._count_processed(job, job.count_processed())

    def ended(self, job: RunningJob) -> None:
        """Count the end of a job on this worker, whatever the reason."""
        self._running.dec()
        self._inflight_ssts.dec(len(job.plan.views))
        self._rework_bytes(job.progress.rework_bytes)

    def completed(self, job: RunningJob) -> None:
        """Count a completed job."""
        self._observe(job, "completed")
        self._count_processed(job, len(job.plan.views))

    def failed(self, job: RunningJob, error: Exception) -> None:
        """Count a failed job."""
        self._observe(job, "failed")
        self._count(error)
        if isinstance(error, CorruptionError) and not isinstance(error, DamagedProgress):
            self._corrupt_sst()

    def not_begun(self, error: DamagedProgress) -> None:
        """Count a claimed job that cannot be resumed."""
        self._count(error)

    def on_heartbeat(self, now_ms: int) -> None:
        """Set the time of the last heartbeat."""
        self._heartbeat(now_ms / 1000)

    def observe(self) -> None:
        """Set the gauges of the running jobs; progress and completion are those of the largest job."""
        jobs = [*self._jobs.values()]
        for name, gauge in self._phases.items():
            gauge.set(sum(job.phase == name for job in jobs))
        largest = max(jobs, key=lambda job: job.plan.input_bytes, default=None)
        ratio = largest.ratio if largest is not None else 0.0
        self._progress_ratio(ratio)
        left_s = self._seconds_left(largest) if largest is not None else None
        self._completion(0 if left_s is None else self._clock.now_ms() / 1000 + left_s)

    def _seconds_left(self, job: RunningJob) -> float | None:
        """Estimate the remaining time from the rate of this attempt; ``None`` before its first row."""
        done, recovered = job.ratio, job.recovered_ratio
        if done <= recovered:
            return None
        return (self._clock.monotonic_s() - job.claimed_s) * (1 - done) / (done - recovered)

    def _count_processed(self, job: RunningJob, processed: int) -> None:
        self._ssts_processed(max(0, processed - job.processed))
        job.processed = max(processed, job.processed)

    def _count(self, error: Exception) -> None:
        self._errors[error_type_of(error), "true" if is_retryable(error) else "false"]()
        if isinstance(error, DamagedProgress):
            self._corrupt_progress()

    def _observe(self, job: RunningJob, result: str) -> None:
        size = job.plan.input_bytes
        size_class = next((name for limit, name in _SIZE_CLASSES if size < limit), "ge_16g")
        self._durations[size_class, result].observe(self._clock.monotonic_s() - job.claimed_s)
