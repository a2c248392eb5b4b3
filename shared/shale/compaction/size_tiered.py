"""The size-tiered scheduler: which L0s and runs to merge next (docs/protocol.md 6.7).

A tree with enough L0s merges its oldest ones into a fresh run.  Otherwise neighbouring runs of similar size are
merged into the oldest of them.  A merge waits while its result would join a tier that is full already.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from shale.compaction.entries import count_using_capacity
from shale.compaction.specs import (
    L0Source,
    RunSource,
    Source,
    destination_of,
    has_duplicate_l0,
    next_run_id,
    touched_by,
)
from shale.types import Compactions, Manifest, RunId, TieredSpec, Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeTieredOptions:
    """Limits of one merge, and of all merges that wait or run at the same time."""

    min_compaction_sources: int = 4
    max_compaction_sources: int = 8
    include_size_threshold: float = 4.0
    max_concurrent_compactions: int = 4


class _Sized(NamedTuple):
    source: Source
    size_bytes: int


@dataclass(slots=True)
class _TreePlan:
    """One tree during one proposal; ``taken`` grows with the picks."""

    segment: bytes
    l0: list[_Sized]
    runs: list[_Sized]
    l0_is_ambiguous: bool
    taken: set[Source] = field(default_factory=set)


def plan_compactions(manifest: Manifest, compactions: Compactions, options: SizeTieredOptions) -> list[TieredSpec]:
    """Propose merges for the free capacity, the tree with the most L0s first, one per tree and pass."""
    active = [entry.spec for entry in compactions.entries if entry.is_active]
    slots = options.max_concurrent_compactions - count_using_capacity(compactions)
    fresh = max([next_run_id(manifest), *(d + 1 for spec in active if (d := destination_of(spec)) is not None)])
    trees = [_tree_plan(prefix, tree) for prefix, tree in manifest.trees()]
    trees.sort(key=lambda tree: -len(tree.l0))
    for tree in trees:
        tree.taken.update(*(touched_by(spec) for spec in active if spec.segment == tree.segment))
    picked: list[TieredSpec] = []
    while True:
        before = len(picked)
        for tree in trees:
            if len(picked) >= slots:
                return picked
            spec = _pick(tree, RunId(fresh), options)
            if spec is not None:
                picked.append(spec)
                tree.taken |= touched_by(spec)
                fresh += bool(spec.l0_view_ids)  # only merges of L0s open a new run
        if len(picked) == before:
            return picked


def _tree_plan(segment: bytes, tree: Tree) -> _TreePlan:
    return _TreePlan(
        segment=segment,
        l0=[_Sized(L0Source(segment, view.id), view.sst.estimated_size_bytes) for view in tree.l0],
        runs=[_Sized(RunSource(run.id), run.estimated_size_bytes) for run in tree.compacted],
        l0_is_ambiguous=has_duplicate_l0(tree),
    )


def _pick(tree: _TreePlan, fresh: RunId, options: SizeTieredOptions) -> TieredSpec | None:
    return _pick_l0(tree, fresh, options) or _pick_runs(tree, options)


def _pick_l0(tree: _TreePlan, fresh: RunId, options: SizeTieredOptions) -> TieredSpec | None:
    if len(tree.l0) < options.min_compaction_sources or tree.l0_is_ambiguous:
        return None
    candidates = tree.l0[-options.max_compaction_sources :]
    if not _may_merge(tree, candidates, fresh, 0, options):
        return None
    return _spec(tree, candidates, fresh)


def _pick_runs(tree: _TreePlan, options: SizeTieredOptions) -> TieredSpec | None:
    for start in range(len(tree.runs)):
        chain = _checked_chain(tree, start, options)
        if len(chain) >= options.min_compaction_sources:
            chain = chain[-options.max_compaction_sources :]
            return _spec(tree, chain, _run_id(chain[-1]))
    return None


def _checked_chain(tree: _TreePlan, start: int, options: SizeTieredOptions) -> list[_Sized]:
    """The longest size-compatible chain from ``start`` every prefix of which may be merged."""
    chain = tree.runs[start : start + _chain_length(tree.runs, start, options)]
    for length in range(1, len(chain) + 1):
        candidates = chain[:length]
        if not _may_merge(tree, candidates, _run_id(candidates[-1]), start + length, options):
            return chain[: length - 1]
    return chain


def _chain_length(runs: Sequence[_Sized], start: int, options: SizeTieredOptions) -> int:
    """How many runs from ``start`` on are at most ``threshold`` times the smallest run before them."""
    smallest = runs[start].size_bytes
    for index in range(start + 1, len(runs)):
        size = runs[index].size_bytes
        if size > int(smallest * options.include_size_threshold):
            return index - start
        smallest = min(smallest, size)
    return len(runs) - start


def _may_merge(
    tree: _TreePlan, candidates: Sequence[_Sized], destination: RunId, next_run: int, options: SizeTieredOptions
) -> bool:
    """No conflict with other compactions, and the tier that the result would join is not full."""
    if RunSource(destination) in tree.taken or any(candidate.source in tree.taken for candidate in candidates):
        return False
    if next_run >= len(tree.runs):
        return True
    result_size = sum(candidate.size_bytes for candidate in candidates)
    if tree.runs[next_run].size_bytes > int(result_size * options.include_size_threshold):
        return True
    return _chain_length(tree.runs, next_run, options) < options.max_compaction_sources


def _run_id(sized: _Sized) -> RunId:
    assert isinstance(sized.source, RunSource)
    return sized.source.run_id


def _spec(tree: _TreePlan, chosen: Sequence[_Sized], destination: RunId) -> TieredSpec:
    sources = [sized.source for sized in chosen]
    return TieredSpec(
        segment=tree.segment,
        l0_view_ids=tuple(source.view_id for source in sources if isinstance(source, L0Source)),
        sorted_runs=tuple(source.run_id for source in sources if isinstance(source, RunSource)),
        destination=destination,
    )
