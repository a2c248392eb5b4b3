"""The trees of a manifest while a policy makes its proposals: what there is, how large, and what is taken already.

Every policy is a ``Pick``: the next merge that it wants of one tree, or ``None``.  ``propose`` asks it about each tree
in turn until it wants nothing more, so that no tree waits for another one's whole list.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from shale.compaction.specs import (
    L0Source,
    RunSource,
    Source,
    fresh_run_id,
    has_duplicate_l0,
    touched_by,
)
from shale.types import Compactions, Manifest, RunId, TieredSpec, Tree


class Sized(NamedTuple):
    """A possible source, and the estimate of its size that policies go by."""

    source: Source
    size_bytes: int


@dataclass(slots=True)
class TreePlan:
    """One tree during one proposal, sources newest first; ``taken`` grows with the picks."""

    segment: bytes
    tree: Tree
    l0: tuple[Sized, ...]
    runs: tuple[Sized, ...]
    l0_is_ambiguous: bool
    taken: set[Source] = field(default_factory=set)

    def is_free(self, candidates: Sequence[Sized], destination: RunId) -> bool:
        """Whether no active compaction and no pick before this one has to do with any of them."""
        if RunSource(destination) in self.taken:
            return False
        return not any(candidate.source in self.taken for candidate in candidates)


Pick = Callable[[TreePlan, RunId], TieredSpec | None]
"""The next merge of a tree; the second argument is the lowest id that a new run may have."""


def propose(manifest: Manifest, compactions: Compactions, pick: Pick) -> Iterator[TieredSpec]:
    """All merges that ``pick`` wants, the tree with the most L0s first, one per tree and pass."""
    active = [entry.spec for entry in compactions.entries if entry.is_active]
    fresh: int = fresh_run_id(manifest, compactions)
    trees = [_tree_plan(prefix, tree) for prefix, tree in manifest.trees()]
    trees.sort(key=lambda tree: -len(tree.l0))
    for tree in trees:
        tree.taken.update(*(touched_by(spec) for spec in active if spec.segment == tree.segment))
    waiting = trees
    while waiting:
        wanting: list[TreePlan] = []
        for tree in waiting:
            spec = pick(tree, RunId(fresh))
            if spec is None:
                continue  # Picks take sources away from their own tree only, so this one will want nothing later.
            wanting.append(tree)
            tree.taken |= touched_by(spec)
            fresh = max(fresh, spec.destination + 1)
            yield spec
        waiting = wanting


def run_id(sized: Sized) -> RunId:
    """The id of a candidate that is a run."""
    assert isinstance(sized.source, RunSource)
    return sized.source.run_id


def merge_of(tree: TreePlan, chosen: Sequence[Sized], destination: RunId) -> TieredSpec:
    """The spec that merges the candidates, given in the order of the tree."""
    sources = [sized.source for sized in chosen]
    return TieredSpec(
        segment=tree.segment,
        l0_view_ids=tuple(source.view_id for source in sources if isinstance(source, L0Source)),
        sorted_runs=tuple(source.run_id for source in sources if isinstance(source, RunSource)),
        destination=destination,
    )


def _tree_plan(segment: bytes, tree: Tree) -> TreePlan:
    return TreePlan(
        segment=segment,
        tree=tree,
        l0=tuple(Sized(L0Source(segment, view.id), view.sst.estimated_size_bytes) for view in tree.l0),
        runs=tuple(Sized(RunSource(run.id), run.estimated_size_bytes) for run in tree.compacted),
        l0_is_ambiguous=has_duplicate_l0(tree),
    )
