"""What compacts in a simulation, and how fast, with the engine's defaults (docs/protocol.md, Appendix A)."""

from dataclasses import dataclass

from shale.compaction.option_checks import positive_problems, refuse

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Writer, coordinator and workers, as far as they decide about time.

    Args:
        jobs: compactions that run at the same time, as ``max_concurrent_compactions``.
        throughput_bytes_s: input that one job merges per second; infinite is allowed.
        l0_max_ssts: L0s at which a flush waits.
        poll_interval_s: time between two looks of the coordinator.
        max_sst_bytes: size of output SSTs, which decides about requests only.

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
