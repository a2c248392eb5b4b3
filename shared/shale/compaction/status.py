"""What is told about one compaction: its place in life, its inputs and outputs, and how far it is.

The stored entry has no times, no attempts and no error text (docs/protocol.md 6.2).  They are derived, as well as
they can be, from the versions of the compactions file that are still there; what cannot be known is ``None``.
"""

from dataclasses import dataclass
from enum import StrEnum

from shale.compaction.history import Life
from shale.compaction.progress import Progress, outputs_of, progress_of
from shale.types import (
    Compaction,
    CompactionSpec,
    CompactionStatus,
    Sst,
    SstView,
    Ulid,
    WorkerClaim,
)


class Phase(StrEnum):
    """Where a compaction stands, as people ask: the statuses, with Running split by whether anything is written."""

    SUBMITTED = "submitted"
    SCHEDULED = "scheduled"
    READING = "reading"
    WRITING = "writing"
    COMMITTING = "committing"
    COMPLETED = "completed"
    FAILED = "failed"

    @property
    def is_finished(self) -> bool:
        """Nothing will happen any more."""
        return self in (Phase.COMPLETED, Phase.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionInfo:
    """One compaction.  Times are milliseconds since 1970 by the clocks of the store and of the submitter.

    Args:
        inputs: the SSTs behind the sources, ``None`` where no manifest that has them is left.
        outputs: finished SSTs, also of a job that runs.
        attempts: how often a worker has claimed it, as far as the retained versions show.
        heartbeat_age_ms: since the worker's last sign of life, by the worker's own clock.
        error: why it failed.
    """

    id: Ulid
    spec: CompactionSpec
    status: CompactionStatus
    phase: Phase
    inputs: tuple[SstView, ...] | None
    outputs: tuple[Sst, ...]
    progress: Progress
    created_ms: int
    started_ms: int | None = None
    finished_ms: int | None = None
    estimated_completion_ms: int | None = None
    attempts: int = 0
    worker: WorkerClaim | None = None
    heartbeat_age_ms: int | None = None
    error: str | None = None

    @property
    def is_finished(self) -> bool:
        """Completed or failed."""
        return self.phase.is_finished


def phase_of(entry: Compaction) -> Phase:
    """The phase of a stored entry."""
    match entry.status:
        case CompactionStatus.SUBMITTED:
            return Phase.SUBMITTED
        case CompactionStatus.SCHEDULED:
            return Phase.SCHEDULED
        case CompactionStatus.RUNNING:
            return Phase.WRITING if outputs_of(entry) else Phase.READING
        case CompactionStatus.COMPACTED:
            return Phase.COMMITTING
        case CompactionStatus.COMPLETED:
            return Phase.COMPLETED
        case CompactionStatus.FAILED:
            return Phase.FAILED


def compaction_info(
    entry: Compaction, *, inputs: tuple[SstView, ...] | None, life: Life, now_ms: int, error: str | None = None
) -> CompactionInfo:
    """Put together what is known of one entry."""
    progress = progress_of(entry, inputs)
    running, since = entry.status is CompactionStatus.RUNNING, life.running_since
    completion_ms = None
    if running and since is not None:
        completion_ms = progress.completion_ms(since.written_ms, since.output_bytes, now_ms)
    worker = entry.worker
    return CompactionInfo(
        id=entry.id,
        spec=entry.spec,
        status=entry.status,
        phase=phase_of(entry),
        inputs=inputs,
        outputs=outputs_of(entry),
        progress=progress,
        created_ms=entry.id.ms,
        started_ms=life.started_ms,
        finished_ms=life.finished_ms,
        estimated_completion_ms=completion_ms,
        attempts=life.attempts,
        worker=worker,
        heartbeat_age_ms=max(0, now_ms - worker.last_heartbeat_ms) if running and worker is not None else None,
        error=error,
    )
