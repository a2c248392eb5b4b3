"""Log lines and metrics of a worker's jobs.

Source: docs/how-to/monitor.md and docs/reference/logs.md.
"""

import traceback
from collections.abc import Iterable

from shale.compaction.specs import describe
from shale.env import Clock
from shale.errors import InvalidCompaction, ShaleError
from shale.telemetry.error_types import is_retryable
from shale.telemetry.events import Event
from shale.telemetry.log import LazyLogger
from shale.types import Compaction, Sst, Ulid
from shale_compactor.worker.metrics import WorkerMetrics
from shale_compactor.worker.progress_checks import DamagedProgress
from shale_compactor.worker.running_job import RunningJob


class WorkerReporter:
    """Logs and counts each event of a worker's jobs."""

    def __init__(self, log: LazyLogger, metrics: WorkerMetrics, clock: Clock) -> None:
        self._log = log
        self._metrics = metrics
        self._clock = clock

    def claimed(self, entry: Compaction, *, attempt: int) -> None:
        """Report a claimed entry."""
        self._log.info(
            Event.COMPACTION_CLAIMED,
            compaction_id=str(entry.id),
            spec=describe(entry.spec),
            attempts=attempt,
            resumed=entry.ctx is not None,
        )

    def not_begun(self, entry: Compaction, error: InvalidCompaction | DamagedProgress, *, attempt: int) -> None:
        """Report a claimed entry that cannot be executed.

        Missing sources are the normal result of a race with a commit.  Damaged progress ends the job.
        """
        if isinstance(error, InvalidCompaction):
            self._log.info(Event.COMPACTION_RELEASED, compaction_id=str(entry.id), reason=str(error))
            return
        self._metrics.not_begun(error)
        self._log.error(
            Event.COMPACTION_FAILED,
            compaction_id=str(entry.id),
            spec=describe(entry.spec),
            retryable=False,
            attempts=attempt,
            error=error,
        )

    def failed(self, job: RunningJob, error: Exception) -> None:
        """Report a failed attempt; an error that is not a ``ShaleError`` is logged with its traceback."""
        self._metrics.failed(job, error)
        foreign = "".join(traceback.format_exception(error)) if not isinstance(error, ShaleError) else None
        self._log.error(
            Event.COMPACTION_FAILED,
            compaction_id=str(job.plan.id),
            spec=describe(job.plan.spec),
            retryable=is_retryable(error),
            attempts=job.attempt,
            error=error,
            **({"exc": foreign} if foreign else {}),
        )

    def abandoned(self, job_id: Ulid, reason: str) -> None:
        """Report a job that this worker ended as Failed."""
        self._metrics.abandoned()
        self._log.error(Event.COMPACTION_ABANDONED, compaction_id=str(job_id), reason=reason)

    def finished(self, job: RunningJob, outputs: tuple[Sst, ...]) -> None:
        """Report a stored result."""
        self._metrics.completed(job)
        if job.progress.refused_count:
            self._log.warning(
                Event.COMPACTION_MERGE_FAILED,
                compaction_id=str(job.plan.id),
                operands=job.progress.refused_count,
                error=job.progress.why_refused,
            )
        self._log.info(
            Event.COMPACTION_FINISHED,
            compaction_id=str(job.plan.id),
            spec=describe(job.plan.spec),
            bytes=sum(sst.estimated_size_bytes for sst in outputs),
            ssts=len(outputs),
            attempts=job.attempt,
            duration_ms=int((self._clock.monotonic_s() - job.claimed_s) * 1000),
        )

    def released(self, job_id: Ulid) -> None:
        """Report a released claim."""
        self._log.info(Event.COMPACTION_RELEASED, compaction_id=str(job_id))

    def lost(self, job_id: Ulid, entry: Compaction | None) -> None:
        """Report a job that this worker no longer owns; GC deletes its outputs."""
        self._log.warning(
            Event.COMPACTION_OWNERSHIP_LOST,
            compaction_id=str(job_id),
            owner=entry.worker.worker_id if entry is not None and entry.worker is not None else None,
            status=entry.status.name.lower() if entry is not None else None,
        )

    def progress(self, jobs: Iterable[RunningJob]) -> None:
        """Log the progress of each running job."""
        for job in jobs:
            self._log.info(
                Event.COMPACTION_PROGRESS,
                compaction_id=str(job.plan.id),
                phase=job.phase,
                bytes=job.progress.read_bytes,
                ratio=round(job.ratio, 3),
            )
