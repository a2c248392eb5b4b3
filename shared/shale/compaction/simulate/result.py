"""The result of a simulation: totals, means over time, and a time series."""

from dataclasses import field
from typing import NamedTuple

from shale.core.lazy_dataclass import dataclass


class SimulationSample(NamedTuple):
    """State at one time: seconds since the start; number of sources; stored, live and compacted bytes."""

    at_s: float
    l0_count: int
    run_count: int
    stored_bytes: float
    live_bytes: float
    compacted_bytes: float
    is_stalled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationResult:
    """The result of one policy with one workload.

    Args:
        written_bytes: bytes that clients wrote, as rows.
        flushed_bytes: bytes of L0s, which have each key once.
        compacted_bytes: output bytes of compactions.
        read_bytes: input bytes of compactions.
        write_amplification: bytes of SSTs per byte that clients wrote, without the WAL.
        read_amplification: mean number of L0s and runs that a scan merges.
        space_amplification: mean of stored bytes per byte of live rows, without objects that GC has not deleted yet.
        stall_s: time in which a due flush waited because of too many L0s.
        requests: store requests of compactions, without polling.
    """

    policy: str
    duration_s: float
    written_bytes: float
    flushed_bytes: float
    compacted_bytes: float
    read_bytes: float
    write_amplification: float
    read_amplification: float
    read_amplification_max: int
    space_amplification: float
    space_amplification_max: float
    stall_s: float
    jobs: int
    requests: int
    left_l0: int
    left_runs: int
    samples: tuple[SimulationSample, ...] = field(repr=False)

    @property
    def bytes_written_per_hour(self) -> float:
        """Flushed and compacted bytes per hour."""
        return (self.flushed_bytes + self.compacted_bytes) / (self.duration_s / 3600)

    @property
    def requests_per_hour(self) -> float:
        """Requests of compactions per hour."""
        return self.requests / (self.duration_s / 3600)
