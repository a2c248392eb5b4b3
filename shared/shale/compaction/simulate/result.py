"""What a simulation tells: totals, means over time, and series to draw."""

from dataclasses import dataclass, field
from typing import NamedTuple


class Moment(NamedTuple):
    """The database at one time: seconds since the start; sorted sources; bytes of the manifest, and of live rows."""

    at_s: float
    l0_count: int
    run_count: int
    stored_bytes: float
    live_bytes: float
    compacted_bytes: float
    is_stalled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One policy under one load.

    Args:
        written_bytes: what clients wrote, as rows.
        flushed_bytes: L0s, in which each key is left once.
        compacted_bytes: outputs of compactions.
        read_bytes: inputs of compactions.
        write_amplification: bytes of SSTs per byte that clients wrote; the WAL comes on top.
        read_amplification: L0s and runs that a scan has to merge, a mean over time.
        space_amplification: bytes that the manifest names per byte of live rows, a mean over time; what the collector
            has not deleted yet comes on top.
        stall_s: time in which a flush that was due had to wait for room among the L0s.
        requests: what compactions alone ask of the object store, without polling.
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
    moments: tuple[Moment, ...] = field(repr=False)

    @property
    def bytes_written_per_hour(self) -> float:
        """Flushed and compacted."""
        return (self.flushed_bytes + self.compacted_bytes) / (self.duration_s / 3600)

    @property
    def requests_per_hour(self) -> float:
        """Of compactions."""
        return self.requests / (self.duration_s / 3600)
