"""A job that this worker executes."""

from dataclasses import field

import anyio

from shale.compaction.progress import passed_inputs
from shale.core.lazy_dataclass import dataclass
from shale_compactor.execution.job import Job
from shale_compactor.execution.progress import JobProgress


@dataclass(slots=True, kw_only=True, eq=False)
class RunningJob:
    """A job under execution.

    Attributes:
        attempt: number of the attempt, over all workers, from 1.
        claimed_s: monotonic time of the claim.
        claimed_ms: time of the claim in milliseconds since 1970.
        is_finishing: the result is being stored, so this worker may lose the entry by its own write.
        processed: inputs that are counted as processed, earlier attempts' included.
        failure: why this worker stopped the job while it was running.
        scope: cancels the job.
    """

    plan: Job
    progress: JobProgress
    attempt: int
    claimed_s: float
    claimed_ms: int = 0
    is_resumed: bool = False
    is_finishing: bool = False
    processed: int = 0
    failure: Exception | None = None
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    def __post_init__(self) -> None:
        self.processed = self.count_processed()

    def count_processed(self) -> int:
        """Count the inputs that the finished SSTs have passed."""
        context = self.progress.context()
        return len(passed_inputs(self.plan.views, context.subcompactions)) if context is not None else 0

    @property
    def ratio(self) -> float:
        """Estimated share of the input that has been read, 0 to 1.

        Output bytes would be less exact: the share of dropped rows is known only at the end.  Of earlier attempts only
        the output is known.
        """
        done = self.progress.recovered_bytes + self.progress.read_bytes
        return min(1.0, done / self.plan.input_bytes) if self.plan.input_bytes else 1.0

    @property
    def recovered_ratio(self) -> float:
        """The part of ``ratio`` from earlier attempts."""
        return min(1.0, self.progress.recovered_bytes / self.plan.input_bytes) if self.plan.input_bytes else 0.0

    @property
    def phase(self) -> str:
        """``read`` until the first new row, while the job plans or seeks to its last position; then ``write``."""
        return "write" if self.progress.merged_bytes else "read"
