"""What a worker says about its jobs: one line and the right counters per event (docs/operations.md 1.6, 8)."""

import traceback
from collections.abc import Iterable

from shale.compaction.specs import describe
from shale.env import Clock
from shale.errors import InvalidCompaction, ShaleError
from shale.telemetry.error_types import is_retryable
from shale.telemetry.events import Event
from shale.telemetry.log import EventLog
from shale.types import Compaction, Sst, Ulid
from shale_compactor.worker.contexts import DamagedProgress
from shale_compactor.worker.instruments import WorkerMetrics
from shale_compactor.worker.running import RunningJob


class Reports:
    """Log lines and counters of one worker, each pair in one place."""

    def __init__(self, log: EventLog, metrics: WorkerMetrics, clock: Clock) -> None:
        self._log = log
        self._metrics = metrics
        self._clock = clock

    def claimed(self, entry: Compaction, *, attempt: int) -> None:
        """An entry is ours."""
        self._log.info(
            Event.COMPACTION_CLAIMED,
            compaction_id=str(entry.id),
            spec=describe(entry.spec),
            attempts=attempt,
            resumed=entry.ctx is not None,
        )

    def not_begun(self, entry: Compaction, error: InvalidCompaction | DamagedProgress, *, attempt: int) -> None:
        """A claimed entry cannot be executed and is given back.

        Missing sources are the usual end of a race with a commit; damaged progress is somebody's mistake, and stays
        until the compaction is cancelled.
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
        """An attempt raised; what is not an error of ours brings its traceback."""
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

    def finished(self, job: RunningJob, outputs: tuple[Sst, ...]) -> None:
        """A result was handed over."""
        self._metrics.completed(job)
        if job.progress.refused_count:
            self._log.warning(
                Event.COMPACTION_UNFOLDED,
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
        """A claim was given back."""
        self._log.info(Event.COMPACTION_RELEASED, compaction_id=str(job_id))

    def lost(self, job_id: Ulid, entry: Compaction | None) -> None:
        """The entry is gone, has ended, or belongs to somebody else; what was written for it is garbage."""
        self._log.warning(
            Event.COMPACTION_OWNERSHIP_LOST,
            compaction_id=str(job_id),
            owner=entry.worker.worker_id if entry is not None and entry.worker is not None else None,
            status=entry.status.name.lower() if entry is not None else None,
        )

    def progress(self, jobs: Iterable[RunningJob]) -> None:
        """How far each running job is."""
        for job in jobs:
            self._log.info(
                Event.COMPACTION_PROGRESS,
                compaction_id=str(job.plan.id),
                phase=job.phase,
                bytes=job.progress.read_bytes,
                ratio=round(job.ratio, 3),
            )
