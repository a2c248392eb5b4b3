"""Backoff and end of the attempts at a job (docs/reference/protocol.md 6.9, "Failure").

Attempts count over all workers: their number is in the record of the compaction, which is read before a claim.
"""

from shale.compaction.records import CompactionRecord
from shale.core.lazy_dataclass import dataclass
from shale.types import CompactionStatus, Ulid
from shale_compactor.worker.options import WorkerOptions


@dataclass(frozen=True, slots=True)
class _Failures:
    count: int
    not_before_s: float


class Retries:
    """Failures per job: those in this process, and those that the records tell."""

    def __init__(self, options: WorkerOptions) -> None:
        self.options = options
        self._failures: dict[Ulid, _Failures] = {}
        self._learned: dict[Ulid, CompactionRecord] = {}
        self._abandoned: set[Ulid] = set()

    def attempt(self, job: Ulid) -> int:
        """Return the number of the next attempt, from 1."""
        failures, record = self._failures.get(job), self._learned.get(job)
        return 1 + max(failures.count if failures is not None else 0, record.attempts_count if record else 0)

    def delay_s(self, count: int) -> float:
        """Return the delay after this many failures; it doubles after each."""
        # The exponent is bounded, because 2.0 ** 1024 overflows.
        return min(self.options.retry_delay_s * 2.0 ** min(count - 1, 60), self.options.retry_delay_max_s)

    def failed(self, job: Ulid, now_s: float) -> None:
        """Record a failure and double the delay."""
        failures = self._failures.get(job)
        count = failures.count + 1 if failures is not None else 1
        self._failures[job] = _Failures(count, now_s + self.delay_s(self.attempt(job)))

    def learn(self, record: CompactionRecord, now_s: float, now_ms: int) -> None:
        """Adopt the record of a job; a delay that another worker's clock makes too long is cut."""
        if self._learned.get(record.id) == record:
            return
        self._learned[record.id] = record
        wait_s = min((record.not_before_ms - now_ms) / 1000, self.options.retry_delay_max_s)
        known = self._failures.get(record.id, _Failures(0, now_s))
        self._failures[record.id] = _Failures(known.count, max(known.not_before_s, now_s + wait_s))

    def abandon(self, job: Ulid) -> None:
        """Never claim the job again, even if a coordinator of SlateDB restores its own copy of the entry."""
        self._abandoned.add(job)

    def is_exhausted(self, record: CompactionRecord) -> bool:
        """Return whether no further attempt is allowed."""
        attempts_max = self.options.max_job_attempts
        spent = attempts_max is not None and record.spent >= attempts_max
        return spent or record.status is CompactionStatus.FAILED

    def exhausted(self, job: Ulid) -> CompactionRecord | None:
        """Return the record of a job that has no attempt left, if that was learned."""
        record = self._learned.get(job)
        return record if record is not None and self.is_exhausted(record) else None

    def excluded(self, now_s: float) -> set[Ulid]:
        """Return the jobs that are in backoff, abandoned, or have no attempts left on this worker."""
        attempts_max = self.options.max_job_attempts
        return self._abandoned | {
            job
            for job, failures in self._failures.items()
            if now_s < failures.not_before_s or (attempts_max is not None and failures.count >= attempts_max)
        }

    def keep_only(self, jobs: set[Ulid]) -> None:
        """Drop all other jobs."""
        self._abandoned &= jobs
        for known in (self._failures, self._learned):
            for job in known.keys() - jobs:
                del known[job]
