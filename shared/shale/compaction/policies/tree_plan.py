"""The trees of a manifest while a policy proposes merges: sources, sizes, and sources already in use.

A policy is a ``Pick``: it returns the next merge of one tree, or ``None``.  ``propose`` calls it for each tree in turn
until all return ``None``, so that no tree waits for all merges of another one.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import NamedTuple

from shale.compaction.specs import (
    L0Source,
    SortedRunSource,
    Source,
    fresh_run_id,
    has_duplicate_l0,
    touched_by,
)
from shale.core.lazy_dataclass import dataclass
from shale.types import Compactions, Manifest, RunId, TieredSpec, Tree


class Sized(NamedTuple):
    """A possible source, and its estimated size in bytes."""

    source: Source
    size_bytes: int


@dataclass(slots=True)
class TreePlan:
    """One tree during one call of ``propose``, sources newest first; ``taken`` grows with each pick."""

    segment: bytes
    tree: Tree
    l0: tuple[Sized, ...]
    runs: tuple[Sized, ...]
    l0_is_ambiguous: bool
    taken: set[Source] = field(default_factory=set)

    def is_free(self, candidates: Sequence[Sized], destination: RunId) -> bool:
        """Return whether no active compaction and no earlier pick uses any of these."""
        if SortedRunSource(destination) in self.taken:
            return False
        return not any(candidate.source in self.taken for candidate in candidates)


Pick = Callable[[TreePlan, RunId], TieredSpec | None]
"""Returns the next merge of a tree; the second argument is the lowest allowed id of a new run."""


def propose(manifest: Manifest, compactions: Compactions, pick: Pick) -> Iterator[TieredSpec]:
    """Yield all merges that ``pick`` returns: one per tree and pass, the tree with the most L0s first."""
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
                continue  # Picks use sources of their own tree only, so this tree has no more merges later.
            wanting.append(tree)
            tree.taken |= touched_by(spec)
            fresh = max(fresh, spec.destination + 1)
            yield spec
        waiting = wanting


def run_id(sized: Sized) -> RunId:
    """Return the run id of a candidate that is a run."""
    assert isinstance(sized.source, SortedRunSource)
    return sized.source.run_id


def merge_of(tree: TreePlan, chosen: Sequence[Sized], destination: RunId) -> TieredSpec:
    """Return the spec that merges the candidates, which are in the order of the tree."""
    sources = [sized.source for sized in chosen]
    return TieredSpec(
        segment=tree.segment,
        l0_view_ids=tuple(source.view_id for source in sources if isinstance(source, L0Source)),
        sorted_runs=tuple(source.run_id for source in sources if isinstance(source, SortedRunSource)),
        destination=destination,
    )


def _tree_plan(segment: bytes, tree: Tree) -> TreePlan:
    return TreePlan(
        segment=segment,
        tree=tree,
        l0=tuple(Sized(L0Source(segment, view.id), view.sst.estimated_size_bytes) for view in tree.l0),
        runs=tuple(Sized(SortedRunSource(run.id), run.estimated_size_bytes) for run in tree.compacted),
        l0_is_ambiguous=has_duplicate_l0(tree),
    )
