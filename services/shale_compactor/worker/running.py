"""A job that this worker executes."""

from dataclasses import dataclass, field

import anyio

from shale_compactor.execution.job import Job
from shale_compactor.execution.progress import JobProgress


@dataclass(slots=True, kw_only=True, eq=False)
class RunningJob:
    """``scope`` ends it; ``attempt`` counts from 1 in this process; ``started_s`` is monotonic.

    While ``is_finishing`` the result is being handed over, so the entry may stop being ours by our own doing.
    """

    plan: Job
    progress: JobProgress
    attempt: int
    started_s: float
    is_finishing: bool = False
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    @property
    def ratio(self) -> float:
        """Share of the input that is merged, by estimates: 0 to 1."""
        done = self.progress.recovered_bytes + self.progress.merged_bytes
        return min(1.0, done / self.plan.input_bytes) if self.plan.input_bytes else 1.0
