"""One round of a coordinator as one decision, so that it can be stored in one write (docs/protocol.md 6.6)."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from shale.compaction.entries import count_using_capacity
from shale.compaction.scheduler import CompactionScheduler
from shale.types import Compactions, Manifest, Ulid
from shale_compactor.states.admission import admit_proposals, admit_submitted
from shale_compactor.states.commit import commit_compacted
from shale_compactor.states.reclaim import Sighting, plan_reclaim
from shale_compactor.states.step import Step
from shale_compactor.states.withheld import Sources, without_withheld


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a round goes by.

    Args:
        scheduler: what should be compacted.
        capacity: entries that may wait for a worker or run.
        trivial_moves: whether sources that do not overlap become a run as they are.
        withheld: sources of jobs that the scheduler must not propose again yet.
    """

    scheduler: CompactionScheduler
    capacity: int
    trivial_moves: bool
    withheld: Collection[Sources] = ()


def plan_round(manifest: Manifest, compactions: Compactions, policy: Policy, new_id: Callable[[], Ulid]) -> Step:
    """Commit results, admit submissions, propose more: each part sees what the one before it decided."""
    step = commit_compacted(manifest, compactions)
    step = step.then(admit_submitted(step.manifest, step.compactions, trivial_moves=policy.trivial_moves))
    if count_using_capacity(step.compactions) >= policy.capacity:
        return step
    return step.then(
        admit_proposals(
            step.manifest,
            step.compactions,
            without_withheld(policy.scheduler.plan(step.manifest, step.compactions), policy.withheld),
            new_id=new_id,
            capacity=policy.capacity,
            trivial_moves=policy.trivial_moves,
        )
    )


def plan_tick(
    manifest: Manifest,
    compactions: Compactions,
    policy: Policy,
    new_id: Callable[[], Ulid],
    *,
    seen: Mapping[Ulid, Sighting],
    now_s: float,
    timeout_s: float,
) -> Step:
    """A round that first takes jobs back from silent workers."""
    step = plan_reclaim(manifest, compactions, seen, now_s=now_s, timeout_s=timeout_s)
    return step.then(plan_round(step.manifest, step.compactions, policy, new_id))
