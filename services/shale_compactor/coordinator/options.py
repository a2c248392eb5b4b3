"""Options of the coordinator; the defaults are SlateDB's (docs/reference/protocol.md, Appendix A)."""

from dataclasses import field

from shale.compaction.policies.scheduler import CompactionScheduler
from shale.compaction.policies.size_tiered import SizeTiered
from shale.core.lazy_dataclass import dataclass
from shale.types import Epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorOptions:
    """Options of the coordinator.

    Args:
        scheduler: the policy that proposes compactions, the most urgent first.
        max_concurrent_compactions: scheduled and running jobs, over all trees and workers.
        poll_interval_s: time between two scheduling rounds.
        commit_compacted_interval_s: time between two checks for results, while jobs are active.
        worker_heartbeat_timeout_s: time without a heartbeat after which a job is reclaimed.
        cancel_cooldown_s: time after a cancellation or a failure in which the same job is not scheduled again.
        checkpoint_lifetime_s: time for which a commit protects its inputs for readers; 0: it does not, as the
            only collector keeps for a while what nothing references.
        enable_trivial_move: move sources that do not overlap to a run without rewriting them.
        writer_epoch: of the writer in whose process it runs; it gives way to a compactor of its own process.  ``None``:
            it has a process of its own.
    """

    scheduler: CompactionScheduler = field(default_factory=SizeTiered)
    max_concurrent_compactions: int = 4
    poll_interval_s: float = 5.0
    commit_compacted_interval_s: float = 1.0
    worker_heartbeat_timeout_s: float = 30.0
    cancel_cooldown_s: float = 300.0
    checkpoint_lifetime_s: float = 900.0
    enable_trivial_move: bool = False
    writer_epoch: Epoch | None = None


def max_poll_gap_s(options: CoordinatorOptions) -> float:
    """Return the longest normal gap between two polls.

    A longer gap means that this process, not the workers, was stalled.
    """
    return max(2 * options.poll_interval_s, options.worker_heartbeat_timeout_s / 3)
