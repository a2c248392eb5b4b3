"""One round of the coordinator as one decision, stored in one write.

Source: docs/reference/protocol.md 6.6.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TypeAlias

from shale.compaction.entries import count_using_capacity
from shale.compaction.policies.scheduler import CompactionScheduler
from shale.compaction.specs import Source, sources_of
from shale.core.lazy_dataclass import dataclass
from shale.types import Compaction, Compactions, CompactionSpec, Manifest, Ulid
from shale_compactor.planning.admission import admit_proposals, admit_submitted
from shale_compactor.planning.commit import commit_compacted
from shale_compactor.planning.reclaim import ObservedHeartbeat, plan_reclaim
from shale_compactor.planning.step import PlanningStep

SourceSet: TypeAlias = frozenset[Source]


def update_cooldown(
    until_s: Mapping[SourceSet, float], ended: Iterable[Compaction], *, now_s: float, cooldown_s: float
) -> dict[SourceSet, float]:
    """Add the sources of cancelled and failed jobs and drop those whose cooldown has ended (monotonic seconds)."""
    kept = {sources: end_s for sources, end_s in until_s.items() if end_s > now_s}
    return kept | {frozenset(sources_of(entry.spec)): now_s + cooldown_s for entry in ended}


def outside_cooldown(specs: Iterable[CompactionSpec], in_cooldown: Collection[SourceSet]) -> Iterator[CompactionSpec]:
    """Yield the proposals whose sources are not in cooldown; evaluated lazily."""
    return (spec for spec in specs if frozenset(sources_of(spec)) not in in_cooldown)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Parameters of a round.

    Args:
        scheduler: proposes compactions.
        capacity: maximum of waiting and running entries.
        trivial_moves: move sources that do not overlap to a run without rewriting them.
        in_cooldown: sources of recently cancelled or failed jobs, which are not scheduled again yet.
    """

    scheduler: CompactionScheduler
    capacity: int
    trivial_moves: bool
    in_cooldown: Collection[SourceSet] = ()


def plan_commit_round(
    manifest: Manifest, compactions: Compactions, policy: Policy, new_id: Callable[[], Ulid]
) -> PlanningStep:
    """Commit results, admit submissions, then admit proposals; each step sees the decisions of the one before."""
    step = commit_compacted(manifest, compactions)
    step = step.then(
        admit_submitted(step.manifest, step.compactions, trivial_moves=policy.trivial_moves, capacity=policy.capacity)
    )
    if count_using_capacity(step.compactions) >= policy.capacity:
        return step
    return step.then(
        admit_proposals(
            step.manifest,
            step.compactions,
            outside_cooldown(policy.scheduler.plan(step.manifest, step.compactions), policy.in_cooldown),
            new_id=new_id,
            capacity=policy.capacity,
            trivial_moves=policy.trivial_moves,
        )
    )


def plan_round(
    manifest: Manifest,
    compactions: Compactions,
    policy: Policy,
    new_id: Callable[[], Ulid],
    *,
    seen: Mapping[Ulid, ObservedHeartbeat],
    now_s: float,
    timeout_s: float,
) -> PlanningStep:
    """Reclaim jobs of silent workers, then plan a round."""
    step = plan_reclaim(manifest, compactions, seen, now_s=now_s, timeout_s=timeout_s)
    return step.then(plan_commit_round(step.manifest, step.compactions, policy, new_id))
