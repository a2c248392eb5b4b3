"""Backoff of jobs that failed on this worker (docs/reference/protocol.md 6.9, "Failure")."""

from shale.core.lazy_dataclass import dataclass
from shale.types import Ulid
from shale_compactor.worker.options import WorkerOptions


@dataclass(frozen=True, slots=True)
class _Failures:
    count: int
    not_before_s: float


class Retries:
    """Failures per job in this process."""

    def __init__(self, options: WorkerOptions) -> None:
        self.options = options
        self._failures: dict[Ulid, _Failures] = {}

    def attempt(self, job: Ulid) -> int:
        """Return the number of the next attempt, from 1."""
        failures = self._failures.get(job)
        return failures.count + 1 if failures is not None else 1

    def failed(self, job: Ulid, now_s: float) -> None:
        """Record a failure and double the delay."""
        count = self.attempt(job)
        # The exponent is bounded, because 2.0 ** 1024 overflows.
        delay_s = self.options.retry_delay_s * 2.0 ** min(count - 1, 60)
        self._failures[job] = _Failures(count, now_s + min(delay_s, self.options.retry_delay_max_s))

    def excluded(self, now_s: float) -> set[Ulid]:
        """Return the jobs that are in backoff, or have no attempts left on this worker."""
        attempts_max = self.options.max_job_attempts
        return {
            job
            for job, failures in self._failures.items()
            if now_s < failures.not_before_s or (attempts_max is not None and failures.count >= attempts_max)
        }

    def keep_only(self, jobs: set[Ulid]) -> None:
        """Drop all other jobs."""
        for job in self._failures.keys() - jobs:
            del self._failures[job]
