"""What a worker measures (docs/operations.md 1.5, 1.6), bound once.

A running job is counted in gauges from claim to end, however it ends.  Only a job that ran to its end counts as
completed, only one that raised counts as failed; a cancelled or lost one counts as neither.
"""

from shale.env import Env
from shale.errors import CorruptionError, ShaleError
from shale.telemetry.error_types import ErrorType, error_type_of
from shale.telemetry.metrics import Metrics
from shale_compactor.worker.running import RunningJob

_MIB = 1024 * 1024

_SIZE_CLASSES = ((64 * _MIB, "lt_64m"), (1024 * _MIB, "lt_1g"), (16 * 1024 * _MIB, "lt_16g"))


class WorkerMetrics:
    """Counters and gauges of one worker."""

    def __init__(self, metrics: Metrics, env: Env, worker: str) -> None:
        self._clock = env.clock
        self.claimed = metrics.counter("slatedb_compactor_jobs_claimed_total").inc
        self._running = metrics.gauge("slatedb_compactor_running", worker=worker)
        self._output_bytes = metrics.counter("slatedb_compactor_output_bytes_total", worker=worker).inc
        self._ssts_written = metrics.counter("slatedb_compactor_ssts_written_total", worker=worker).inc
        self._heartbeat = metrics.gauge("slatedb_compactor_worker_heartbeat_timestamp_seconds", worker=worker).set
        self._input_bytes = metrics.counter("slatedb_compaction_input_bytes_total").inc
        self._ssts_processed = metrics.counter("slatedb_compaction_ssts_processed_total").inc
        self._inflight_ssts = metrics.gauge("slatedb_compaction_inflight_input_ssts")
        self._recovered_jobs = metrics.counter("slatedb_compaction_recovered_jobs_total").inc
        self._recovered_bytes = metrics.counter("slatedb_compaction_recovered_bytes_total").inc
        self._recovery_seconds = metrics.histogram("slatedb_compaction_recovery_duration_seconds").observe
        self._repeated_bytes = metrics.counter("slatedb_compaction_repeated_bytes_total").inc
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
        self._corrupt = metrics.counter("slatedb_corruption_total", resource="compacted").inc
        name = "slatedb_compaction_errors_total"
        self._errors = {
            (error_type, retryable): metrics.counter(name, error_type=error_type.value, retryable=retryable).inc
            for error_type in ErrorType
            for retryable in ("true", "false")
        }

    def started(self, job: RunningJob) -> None:
        """A claimed job begins."""
        self._running.inc()
        self._inflight_ssts.inc(len(job.plan.views))
        if job.progress.recovered_bytes:
            self._recovered_jobs()
            self._recovered_bytes(job.progress.recovered_bytes)

    def first_row(self, job: RunningJob) -> None:
        """A job that goes on where another worker stopped has produced its first new row."""
        if job.progress.recovered_bytes:
            self._recovery_seconds(self._clock.monotonic_s() - job.started_s)

    def wrote(self, data_bytes: int) -> None:
        """An output SST is in the store."""
        self._ssts_written()
        self._output_bytes(data_bytes)

    def ended(self, job: RunningJob) -> None:
        """A job is not executed here any more, whatever the reason."""
        self._running.dec()
        self._inflight_ssts.dec(len(job.plan.views))
        self._repeated_bytes(job.progress.repeated_bytes)

    def completed(self, job: RunningJob) -> None:
        """A job ran to its end and its result was handed over."""
        self._observe(job, "completed")
        self._input_bytes(job.plan.input_bytes)
        self._ssts_processed(len(job.plan.views))

    def failed(self, job: RunningJob, error: ShaleError) -> None:
        """A job raised."""
        self._observe(job, "failed")
        self._errors[error_type_of(error), "true" if error.retryable else "false"]()
        if isinstance(error, CorruptionError):
            self._corrupt()  # a job reads nothing but SSTs

    def beat(self, now_ms: int) -> None:
        """A heartbeat was written."""
        self._heartbeat(now_ms / 1000)

    def observe(self, jobs: list[RunningJob]) -> None:
        """Set the gauges that describe the running jobs; the largest stands for all."""
        writing = sum(bool(job.progress.outputs()) for job in jobs)
        self._phases["write"].set(writing)
        self._phases["read"].set(len(jobs) - writing)
        largest = max(jobs, key=lambda job: job.plan.input_bytes, default=None)
        ratio = largest.ratio if largest is not None else 0.0
        self._progress_ratio(ratio)
        if largest is None or ratio == 0:
            self._completion(0)
        else:
            elapsed_s = self._clock.monotonic_s() - largest.started_s
            self._completion(self._clock.now_ms() / 1000 + elapsed_s * (1 - ratio) / ratio)

    def _observe(self, job: RunningJob, result: str) -> None:
        size = job.plan.input_bytes
        size_class = next((name for limit, name in _SIZE_CLASSES if size < limit), "ge_16g")
        self._durations[size_class, result].observe(self._clock.monotonic_s() - job.started_s)
