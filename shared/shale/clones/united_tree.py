"""One tree out of several with disjoint keys (docs/protocol.md 11.2, rules 3 and 8).

The ids of the runs are the caller's to give; here only their order counts.
"""

import heapq
from collections.abc import Sequence
from dataclasses import replace

from shale.clones.lift import duplicated, runs_of
from shale.clones.seams import joined_run, merged_l0
from shale.types import SortedRun, SstView, Tree

_SIMILAR_FACTOR = 4
"""Two runs become one if neither is more than this many times as large as the other."""


def united_tree(trees: Sequence[Tree], *, compact: bool = False) -> Tree:
    """All views of the trees, which are given in the order of their keys.

    L0s are merged by the time of their SSTs, which changes nothing within a tree.  The list must not hold a view or an
    SST twice.  Where it would, views that a projection has cut apart are put together again; where that is not enough,
    L0s become runs, in front of those of their own tree.

    Args:
        compact: put together what can be, needed or not.
    """
    interleaved = Tree(l0=tuple(heapq.merge(*(tree.l0 for tree in trees), key=_age)))
    merged = merged_l0([tree.l0 for tree in trees]) if compact or duplicated(interleaved) else None
    l0 = interleaved if merged is None else Tree(l0=merged)
    if duplicated(l0):
        return Tree(compacted=_united_runs([_lifted(tree) for tree in trees], compact=compact))
    return replace(l0, compacted=_united_runs([tree.compacted for tree in trees], compact=compact))


def _age(view: SstView) -> int:
    return -view.sst.id.ms


def _lifted(tree: Tree) -> tuple[SortedRun, ...]:
    return (*runs_of(tree.l0, 0), *tree.compacted)


def _united_runs(parts: Sequence[Sequence[SortedRun]], *, compact: bool) -> tuple[SortedRun, ...]:
    if not compact:
        return tuple(run for runs in parts for run in runs)
    united: Sequence[SortedRun] = ()
    for runs in parts:
        united = _zipped(united, runs)
    return tuple(united)


def _zipped(left: Sequence[SortedRun], right: Sequence[SortedRun]) -> list[SortedRun]:
    """Two lists in one, similar runs as one run; neither list changes its order, and between them there is none."""
    united: list[SortedRun] = []
    old, new = len(left) - 1, len(right) - 1
    while old >= 0 and new >= 0:
        one, other = left[old].estimated_size_bytes, right[new].estimated_size_bytes
        if max(one, other) <= _SIMILAR_FACTOR * min(one, other):
            united.append(_joined(left[old], right[new]))
            old, new = old - 1, new - 1
        elif one > other:
            united.append(left[old])
            old -= 1
        else:
            united.append(right[new])
            new -= 1
    rest = [*left[: old + 1], *right[: new + 1]]
    return [*rest, *reversed(united)]


def _joined(left: SortedRun, right: SortedRun) -> SortedRun:
    views: tuple[SstView, ...] = joined_run((*left.ssts, *right.ssts))
    return replace(left, ssts=views)
