"""Status of one compaction: phase, inputs, outputs and progress.

The stored entry has no times, attempts and error text (docs/reference/protocol.md 6.2).  They are in its record, or
derived from the retained versions of the compactions file; values that are not known are ``None``.
"""

from dataclasses import replace
from enum import StrEnum

from shale.compaction.history import CompactionLifecycle
from shale.compaction.progress import CompactionProgress, outputs_of, progress_of
from shale.compaction.records import CompactionKind, CompactionRecord
from shale.core.lazy_dataclass import dataclass
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
    """The phase of a compaction: its status, with Running divided into reading and writing."""

    SUBMITTED = "submitted"
    SCHEDULED = "scheduled"
    READING = "reading"
    WRITING = "writing"
    COMMITTING = "committing"
    COMPLETED = "completed"
    FAILED = "failed"

    @property
    def is_finished(self) -> bool:
        """Whether the compaction has ended."""
        return self in (Phase.COMPLETED, Phase.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionInfo:
    """Status of one compaction.  Times are milliseconds since 1970, by the clocks of store and submitter.

    Args:
        inputs: the views of the sources; ``None`` if no retained manifest has them.
        outputs: finished SSTs, also of a running job.
        attempts: number of attempts, over all workers.
        kind: proposed by a coordinator, or requested; ``None`` without a record.
        retry_of: the failed compaction that this one repeats.
        heartbeat_age_ms: time since the worker's last heartbeat, by the worker's clock.
        error: why it failed.
    """

    id: Ulid
    spec: CompactionSpec
    status: CompactionStatus
    phase: Phase
    inputs: tuple[SstView, ...] | None
    outputs: tuple[Sst, ...]
    progress: CompactionProgress
    created_ms: int
    started_ms: int | None = None
    finished_ms: int | None = None
    estimated_completion_ms: int | None = None
    attempts: int = 0
    worker: WorkerClaim | None = None
    heartbeat_age_ms: int | None = None
    error: str | None = None
    kind: CompactionKind | None = None
    retry_of: Ulid | None = None

    @property
    def is_finished(self) -> bool:
        """Whether it is completed or failed."""
        return self.phase.is_finished


def phase_of(entry: Compaction) -> Phase:
    """Return the phase of a stored entry."""
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
    entry: Compaction,
    *,
    inputs: tuple[SstView, ...] | None,
    life: CompactionLifecycle,
    now_ms: int,
    error: str | None = None,
) -> CompactionInfo:
    """Return the status of one entry."""
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


def with_record(info: CompactionInfo, record: CompactionRecord) -> CompactionInfo:
    """Add what the record of a compaction tells: it outlives the versions of the compactions file."""
    has_run = info.status in (CompactionStatus.RUNNING, CompactionStatus.COMPACTED, CompactionStatus.COMPLETED)
    progress, starts = info.progress, [ms for ms in (info.started_ms, record.started_ms) if ms is not None]
    if not info.outputs and record.output_ssts:
        progress = replace(progress, output_ssts=record.output_ssts, output_bytes=record.output_bytes)
    return replace(
        info,
        progress=progress,
        started_ms=min(starts, default=None),
        finished_ms=info.finished_ms if record.finished_ms is None else record.finished_ms,
        attempts=max(info.attempts, record.attempts_count + has_run),
        error=record.error or info.error if info.status is CompactionStatus.FAILED else None,
        kind=record.kind,
        retry_of=record.retry_of,
    )


def entry_of(record: CompactionRecord) -> Compaction | None:
    """Return the entry of a compaction that only its record knows any more; ``None`` if it does not tell the end."""
    if record.spec is None or record.status is None:
        return None
    return Compaction(id=record.id, spec=record.spec, status=record.status)
