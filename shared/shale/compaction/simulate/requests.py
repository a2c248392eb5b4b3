"""How many requests a compaction makes, as the engine makes them."""

import math
from collections.abc import Sequence

READ_AHEAD_BYTES = 4 * 1024 * 1024
"""One GET of a merge brings at most so much."""

PART_BYTES = 8 * 1024 * 1024
"""Outputs are uploaded in parts of this size, between a request that begins and one that completes."""

RANGES_MAX = 4
"""A merge is cut into at most so many ranges, none of which is smaller than the largest source."""

STATE_REQUESTS_PER_JOB = 22
"""Six conditional puts (scheduled, claimed, finished, checkpoint, result, completed) and the reads around them."""


def job_requests(input_bytes: Sequence[int], output_bytes: float, max_sst_bytes: int) -> int:
    """Requests of one job with inputs of these sizes, all of whose SSTs are of ``max_sst_bytes`` but the last."""
    ranges = max(1, min(RANGES_MAX, sum(input_bytes) // max(1, *input_bytes)))
    footers = sum(math.ceil(size / max_sst_bytes) for size in input_bytes)
    reads = sum(max(ranges, math.ceil(size / READ_AHEAD_BYTES)) for size in input_bytes)
    outputs = max(ranges, math.ceil(output_bytes / max_sst_bytes)) if output_bytes else 0
    uploads = 2 * outputs + max(outputs, math.ceil(output_bytes / PART_BYTES))
    return footers + reads + uploads + STATE_REQUESTS_PER_JOB
