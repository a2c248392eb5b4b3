"""What a failed attempt means for its job (docs/reference/protocol.md 6.9, "Failure").

The record of the attempt is written first, while this worker still owns the entry.
"""

from dataclasses import replace

from shale.compaction.records import Attempt, AttemptResult, CompactionRecord
from shale.env import Env
from shale.errors import MergeOperatorMissing
from shale.protocol.compaction_records import CompactionRecords
from shale.telemetry.error_types import is_retryable
from shale.types import CompactionSpec, CompactionStatus, Ulid
from shale_compactor.worker.retries import Retries


class FailureLog:
    """Records failed attempts, and decides whether another one is worth it."""

    def __init__(self, records: CompactionRecords, worker_id: str, env: Env, retries: Retries) -> None:
        self._records = records
        self._worker_id = worker_id
        self._env = env
        self._retries = retries

    async def learn(self, jobs: set[Ulid]) -> None:
        """Read the records of jobs that this worker could claim."""
        for job in sorted(jobs):
            record = await self._records.read(job)
            if record is not None:
                self._retries.learn(record, self._env.clock.monotonic_s(), self._env.clock.now_ms())

    async def failed(
        self, job: Ulid, spec: CompactionSpec, error: Exception, *, outputs: int, started_ms: int | None = None
    ) -> str | None:
        """Record a failed attempt; return why the job ends with it, or ``None`` if it is tried again.

        Args:
            outputs: finished SSTs that the next attempt keeps.
        """
        self._retries.failed(job, self._env.clock.monotonic_s())
        text = f"{type(error).__name__}: {error}"
        permanent = reason = None if _may_succeed(error) else text

        def change(record: CompactionRecord) -> CompactionRecord:
            nonlocal reason
            reason = permanent
            now_ms = self._env.clock.now_ms()
            delay_s = self._retries.delay_s(record.attempts_count + 1)
            attempt = Attempt(
                worker_id=self._worker_id, ended_ms=now_ms, result=AttemptResult.FAILED, outputs=outputs, error=text
            )
            known = replace(record, spec=spec, started_ms=record.started_ms or started_ms)
            tried = known.with_attempt(attempt, not_before_ms=now_ms + int(delay_s * 1000))
            if reason is None and self._retries.is_exhausted(tried):
                reason = f"{tried.spent} attempts failed, the last with {text}"
            return tried if reason is None else tried.ended(CompactionStatus.FAILED, now_ms, reason)

        await self._records.change(job, change)
        return reason

    async def exhausted(self, job: Ulid, spec: CompactionSpec) -> str | None:
        """Record the end of a job that has no attempt left; return why it ends, or ``None`` if it may be tried."""
        known = self._retries.exhausted(job)
        if known is None:
            return None
        last = known.attempts[-1].error if known.attempts else None
        reason = known.error or f"{known.spent} attempts did not end, the last with {last or 'an unknown error'}"

        def change(record: CompactionRecord) -> CompactionRecord:
            if record.status is CompactionStatus.FAILED:
                return record
            return replace(record, spec=spec).ended(CompactionStatus.FAILED, self._env.clock.now_ms(), reason)

        await self._records.change(job, change)
        return reason


def _may_succeed(error: Exception) -> bool:
    """Return whether another attempt may succeed; another worker may have the merge operator that this one lacks."""
    return is_retryable(error) or isinstance(error, MergeOperatorMissing)
