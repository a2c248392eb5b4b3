"""How many requests a compaction makes, as the engine makes them."""

import math
from collections.abc import Iterable

READ_AHEAD_BYTES = 4 * 1024 * 1024
"""One GET of a merge brings at most so much."""

REQUESTS_PER_STATE_WRITE = 2
"""The conditional put, and the look at its boundary."""

STATE_WRITES_PER_JOB = 5 + 2
"""Submitted, Scheduled, Running, Compacted and Completed in the compactions; checkpoint and result in the manifest."""

GETS_PER_SST = 1
"""Filter, index and statistics lie together at the end of an SST."""


def job_requests(input_bytes: Iterable[float], output_bytes: float, max_sst_bytes: int) -> int:
    """Requests of one job with inputs of these sizes."""
    gets = sum(GETS_PER_SST * ssts(size, max_sst_bytes) + math.ceil(size / READ_AHEAD_BYTES) for size in input_bytes)
    return gets + ssts(output_bytes, max_sst_bytes) + REQUESTS_PER_STATE_WRITE * STATE_WRITES_PER_JOB


def ssts(size_bytes: float, max_sst_bytes: int) -> int:
    """SSTs of a run of this size."""
    return math.ceil(size_bytes / max_sst_bytes)
