"""A job that this worker executes."""

from dataclasses import dataclass, field

import anyio

from shale_compactor.execution.job import Job
from shale_compactor.execution.progress import JobProgress


@dataclass(slots=True, kw_only=True, eq=False)
class RunningJob:
    """``scope`` ends it; ``attempt`` counts from 1 in this process; ``claimed_s`` is monotonic.

    While ``is_finishing`` the result is being handed over, so the entry may stop being ours by our own doing.
    ``failure`` is why this worker has given it up itself, while it was running.
    """

    plan: Job
    progress: JobProgress
    attempt: int
    claimed_s: float
    is_resumed: bool = False
    is_finishing: bool = False
    failure: Exception | None = None
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    @property
    def ratio(self) -> float:
        """Share of the input that has been read, by estimates: 0 to 1.

        Output would say less: how much of the input is superseded or expired is known only afterwards.  Of what earlier
        attempts did, only the output is known.
        """
        done = self.progress.recovered_bytes + self.progress.read_bytes
        return min(1.0, done / self.plan.input_bytes) if self.plan.input_bytes else 1.0

    @property
    def recovered_ratio(self) -> float:
        """The part of ``ratio`` that was done before this attempt."""
        return min(1.0, self.progress.recovered_bytes / self.plan.input_bytes) if self.plan.input_bytes else 0.0

    @property
    def phase(self) -> str:
        """``read`` until the first new row: planning, and seeking to where another attempt stopped; then ``write``."""
        return "write" if self.progress.merged_bytes else "read"
