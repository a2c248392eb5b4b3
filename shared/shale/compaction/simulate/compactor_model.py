"""Model of writer, coordinator and workers in a simulation (docs/reference/protocol.md, Appendix A)."""

import math
from collections.abc import Sequence

from shale.compaction.policies.option_checks import positive_problems, refuse
from shale.core.lazy_dataclass import dataclass

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactorModel:
    """Parameters of writer, coordinator and workers that affect the timing.

    Args:
        jobs: maximum of concurrent compactions, as ``max_concurrent_compactions``.
        throughput_bytes_s: input bytes that one job merges per second; infinite is allowed.
        l0_max_ssts: number of L0s at which a flush waits.
        poll_interval_s: time between two polls of the coordinator.
        max_sst_bytes: size of output SSTs; affects only the number of requests.

    Raises:
        InvalidRequestError: names everything that is out of range.
    """

    jobs: int = 4
    throughput_bytes_s: float = 25 * _MIB
    l0_max_ssts: int = 8
    poll_interval_s: float = 5.0
    max_sst_bytes: int = 256 * _MIB

    def __post_init__(self) -> None:
        finite = (self.jobs, self.l0_max_ssts, self.poll_interval_s, self.max_sst_bytes)
        names = ("jobs", "l0_max_ssts", "poll_interval", "max_sst_size")
        refuse(
            *(positive_problems(name, value) for name, value in zip(names, finite, strict=True)),
            () if self.throughput_bytes_s > 0 else (f"throughput must be above 0, not {self.throughput_bytes_s:g}",),
        )


READ_AHEAD_BYTES = 4 * 1024 * 1024
"""Maximum size of one GET of a merge."""

PART_BYTES = 8 * 1024 * 1024
"""Part size of uploads; each upload has two more requests, to begin and to complete it."""

RANGES_MAX = 4
"""Maximum of key ranges of a merge; none is smaller than the largest source."""

STATE_REQUESTS_PER_JOB = 22
"""Six conditional puts (scheduled, claimed, finished, checkpoint, result, completed) and the reads around them."""


def job_requests(input_bytes: Sequence[int], output_bytes: float, max_sst_bytes: int) -> int:
    """Return the number of requests of one job; all SSTs except the last of each source have ``max_sst_bytes``."""
    ranges = max(1, min(RANGES_MAX, sum(input_bytes) // max(1, *input_bytes)))
    footers = sum(math.ceil(size / max_sst_bytes) for size in input_bytes)
    reads = sum(max(ranges, math.ceil(size / READ_AHEAD_BYTES)) for size in input_bytes)
    outputs = max(ranges, math.ceil(output_bytes / max_sst_bytes)) if output_bytes else 0
    uploads = 2 * outputs + max(outputs, math.ceil(output_bytes / PART_BYTES))
    return footers + reads + uploads + STATE_REQUESTS_PER_JOB
