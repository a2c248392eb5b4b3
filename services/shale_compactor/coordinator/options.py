"""What can be set about the coordinator; the defaults are SlateDB's (docs/protocol.md, Appendix A)."""

from dataclasses import dataclass, field

from shale.compaction.scheduler import CompactionScheduler
from shale.compaction.size_tiered import SizeTiered


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorOptions:
    """Options of the one process that schedules and commits.

    Args:
        scheduler: the policy: which compactions are worth their work, the most urgent first.
        max_concurrent_compactions: how many may wait for a worker or run, over all trees and workers.
        poll_interval_s: time between two rounds of scheduling.
        commit_compacted_interval_s: time between two looks for results, while jobs are active.
        worker_heartbeat_timeout_s: silence after which a job is taken from its worker.
        cancelled_hold_s: how long the scheduler's proposal of a job that an admin has cancelled is passed over.
        checkpoint_lifetime_s: how long a commit protects the inputs for those who still read them.
    """

    scheduler: CompactionScheduler = field(default_factory=SizeTiered)
    max_concurrent_compactions: int = 4
    poll_interval_s: float = 5.0
    commit_compacted_interval_s: float = 1.0
    worker_heartbeat_timeout_s: float = 30.0
    cancelled_hold_s: float = 300.0
    checkpoint_lifetime_s: float = 900.0
    enable_trivial_move: bool = False


def longest_gap_s(options: CoordinatorOptions) -> float:
    """Time between two looks at the compactions after which it was us who were away: store, machine or process."""
    return max(2 * options.poll_interval_s, options.worker_heartbeat_timeout_s / 3)
