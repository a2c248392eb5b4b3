"""What the coordinator sees of each job, for the records of compactions and the metrics of lost work.

Records are written after the compactions file, so that they tell only what is stored (docs/reference/protocol.md 6.16).
"""

from dataclasses import replace

from shale.compaction.outcome import CANCELLED, UNEXPLAINED
from shale.compaction.progress import outputs_of
from shale.compaction.records import Attempt, AttemptResult, CompactionKind, CompactionRecord, RecordChange
from shale.core.lazy_dataclass import dataclass
from shale.env import Clock
from shale.protocol.compaction_records import CompactionRecords
from shale.telemetry.metrics import Metrics
from shale.types import Compaction, CompactionStatus, Ulid
from shale_compactor.planning.merge_state import MergedState
from shale_compactor.planning.step import PlanningStep, Rejected

_S = CompactionStatus
_BEATS_PER_TIMEOUT = 3
"""Heartbeats within a heartbeat timeout, with the default settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ObservedAttempt:
    """A running attempt; monotonic seconds, by this process's observation.

    Args:
        claimed_bytes: output of earlier attempts.
        published_s: when new output was last seen; at first, the claim.
        beat_s: when the heartbeat was last seen to change.
    """

    worker_id: str
    claimed_s: float
    claimed_bytes: int
    output_bytes: int
    published_s: float
    beat_ms: int
    beat_s: float

    def rate(self, output_bytes: int, until_s: float) -> float | None:
        """Return the output in bytes per second of this attempt; ``None`` if it made none."""
        made, took_s = output_bytes - self.claimed_bytes, until_s - self.claimed_s
        return made / took_s if made > 0 and took_s > 0 else None


class JobLog:
    """Observes jobs, and keeps their records; nothing is written before ``flush``."""

    def __init__(self, records: CompactionRecords, clock: Clock, metrics: Metrics) -> None:
        self._records = records
        self._clock = clock
        self._rework_bytes = metrics.counter("slatedb_compaction_rework_bytes_total").inc
        self._attempts: dict[Ulid, _ObservedAttempt] = {}
        self._started_ms: dict[Ulid, int] = {}
        self._lost_s: dict[Ulid, float] = {}
        self._changes: dict[Ulid, RecordChange] = {}

    def merged(self, merged: MergedState, now_s: float) -> None:
        """Observe the merged state: attempts that run, and jobs that an admin or their worker has ended."""
        for entry in merged.compactions.entries:
            if entry.status is _S.RUNNING:
                self._observe(entry, now_s)
        for entry in merged.cancelled:
            self._ended(entry, _S.FAILED, CANCELLED)
        for entry in merged.failed:
            self._failed(entry)
        active = {entry.id for entry in merged.compactions.entries if entry.is_active}
        for known in (self._attempts, self._started_ms, self._lost_s):
            for job in known.keys() - active:
                del known[job]

    def decided(self, step: PlanningStep, *, heartbeat_timeout_s: float) -> None:
        """Note a stored step."""
        now_s = self._clock.monotonic_s()
        proposed = {entry.id for entry in step.proposed}
        for entry in step.scheduled:
            if entry.id not in proposed:
                self._submitted(entry)
        for entry in step.reclaimed:
            self._lost(entry, heartbeat_timeout_s)
        for entry in step.committed:
            self._count_rework(entry, now_s)
            self._ended(entry, _S.COMPLETED)
        for rejection in step.rejected:
            self._ended(rejection.entry, _S.FAILED, _text(rejection))

    async def flush(self) -> None:
        """Write the records; one that cannot be written is left out."""
        changes, self._changes = self._changes, {}
        for job, change in changes.items():
            await self._records.change(job, change)

    def _change(self, job: Ulid, change: RecordChange) -> None:
        """Add a change; all changes of one record are one write."""
        earlier = self._changes.get(job)
        self._changes[job] = change if earlier is None else lambda record: change(earlier(record))

    def _observe(self, entry: Compaction, now_s: float) -> None:
        if entry.worker is None:
            return
        self._started_ms.setdefault(entry.id, self._clock.now_ms())
        size = _size(entry)
        seen = self._attempts.get(entry.id)
        if seen is None or seen.worker_id != entry.worker.worker_id:
            seen = _ObservedAttempt(
                worker_id=entry.worker.worker_id,
                claimed_s=now_s,
                claimed_bytes=size,
                output_bytes=size,
                published_s=now_s,
                beat_ms=entry.worker.last_heartbeat_ms,
                beat_s=now_s,
            )
        if size > seen.output_bytes:
            seen = replace(seen, output_bytes=size, published_s=now_s)
        if entry.worker.last_heartbeat_ms != seen.beat_ms:
            seen = replace(seen, beat_ms=entry.worker.last_heartbeat_ms, beat_s=now_s)
        self._attempts[entry.id] = seen

    def _lost(self, entry: Compaction, heartbeat_timeout_s: float) -> None:
        """Note an attempt whose worker is gone, and estimate its work after the last published output.

        The worker died somewhere between its last heartbeat and the next one.  Without output of its own, the rate is
        that of the attempt that completes the job.
        """
        worker_id = entry.worker.worker_id if entry.worker is not None else ""
        attempt = Attempt(
            worker_id=worker_id,
            ended_ms=self._clock.now_ms(),
            result=AttemptResult.LOST,
            outputs=len(outputs_of(entry)),
            error="its worker sent no heartbeat",
        )
        started_ms = self._started_ms.get(entry.id)

        def change(record: CompactionRecord) -> CompactionRecord:
            added = record.with_attempt(attempt)
            return replace(added, spec=entry.spec, started_ms=record.started_ms or started_ms)

        self._change(entry.id, change)
        seen = self._attempts.pop(entry.id, None)
        if seen is None or seen.worker_id != worker_id:
            return
        lost_s = seen.beat_s - seen.published_s + heartbeat_timeout_s / _BEATS_PER_TIMEOUT / 2
        rate = seen.rate(seen.output_bytes, seen.published_s)
        if rate is None:
            self._lost_s[entry.id] = self._lost_s.get(entry.id, 0.0) + lost_s
        else:
            self._rework_bytes(int(rate * lost_s))

    def _count_rework(self, entry: Compaction, now_s: float) -> None:
        lost_s, seen = self._lost_s.pop(entry.id, 0.0), self._attempts.get(entry.id)
        rate = seen.rate(_size(entry), now_s) if seen is not None else None
        if lost_s and rate is not None:
            self._rework_bytes(int(rate * lost_s))

    def _submitted(self, entry: Compaction) -> None:
        """Note a submission, also one of SlateDB's tools, which write no record."""
        self._change(entry.id, lambda record: replace(record, spec=entry.spec, kind=CompactionKind.EXTERNAL))

    def _failed(self, entry: Compaction) -> None:
        """Note a job that its worker has ended: the worker's record has the error, but not the kind."""
        now_ms, started_ms = self._clock.now_ms(), self._started_ms.pop(entry.id, None)

        def change(record: CompactionRecord) -> CompactionRecord:
            ended = record if record.status is _S.FAILED else record.ended(_S.FAILED, now_ms, UNEXPLAINED)
            return replace(
                ended,
                spec=entry.spec,
                kind=record.kind or CompactionKind.INTERNAL,
                started_ms=record.started_ms or started_ms,
            )

        self._change(entry.id, change)

    def _ended(self, entry: Compaction, status: CompactionStatus, error: str | None = None) -> None:
        """Note the end of a job.  A job without a record was proposed by a coordinator."""
        now_ms, started_ms = self._clock.now_ms(), self._started_ms.pop(entry.id, None)
        outputs = outputs_of(entry) if status is _S.COMPLETED else ()

        def change(record: CompactionRecord) -> CompactionRecord:
            ended = record.ended(status, now_ms, error)
            return replace(
                ended,
                spec=entry.spec,
                kind=record.kind or CompactionKind.INTERNAL,
                started_ms=record.started_ms or started_ms,
                output_ssts=len(outputs),
                output_bytes=sum(sst.estimated_size_bytes for sst in outputs),
            )

        self._change(entry.id, change)


def _size(entry: Compaction) -> int:
    return sum(sst.estimated_size_bytes for sst in outputs_of(entry))


def _text(rejection: Rejected) -> str:
    prefix = f"{rejection.rule}: "
    return prefix + rejection.message.removeprefix(prefix)
