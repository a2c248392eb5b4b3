"""How many requests a compaction makes, as the engine makes them."""

import math
from collections.abc import Iterable

READ_AHEAD_BYTES = 4 * 1024 * 1024
"""One GET of a merge brings at most so much."""

STATE_REQUESTS_PER_JOB = 20
"""Six conditional puts (scheduled, claimed, finished, checkpoint, result, completed) and the reads around them."""

GETS_PER_SST = 1
"""Filter, index and statistics lie together at the end of an SST."""


def job_requests(input_bytes: Iterable[float], output_bytes: float, max_sst_bytes: int) -> int:
    """Requests of one job with inputs of these sizes."""
    gets = sum(GETS_PER_SST * ssts(size, max_sst_bytes) + math.ceil(size / READ_AHEAD_BYTES) for size in input_bytes)
    return gets + ssts(output_bytes, max_sst_bytes) + STATE_REQUESTS_PER_JOB


def ssts(size_bytes: float, max_sst_bytes: int) -> int:
    """SSTs of a run of this size."""
    return math.ceil(size_bytes / max_sst_bytes)
