"""Merge adjacent views of one SST that projections have split.

Views with a gap between them are never merged: the keys in the gap were deleted.  Views are not merged across L0 and
runs or across two runs, and never against the precedence of the L0s in any source.

Source: docs/reference/protocol.md 11.2, rule 8.
"""

import heapq
import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import field, replace

from shale.clones.ranges import are_adjacent, is_within, joined, start_order
from shale.core.lazy_dataclass import dataclass
from shale.types import EVERYTHING, KeyRange, SstView, Ulid


def merged_l0(lists: Sequence[Sequence[SstView]]) -> tuple[SstView, ...] | None:
    """Merge the L0 lists of sources, and adjacent views of an SST.

    Returns:
        Newest first; ``None`` if the sources order two SSTs differently.
    """
    nodes = _Nodes()
    for views in lists:
        nodes.newer_than([nodes.add(view) for view in views])
    order = nodes.sorted()
    return None if order is None else tuple(nodes.views[index] for index in order)


def merged_view(left: SstView, right: SstView) -> SstView | None:
    """Merge two views; return ``None`` if they are of different SSTs or not adjacent."""
    if left.sst.id != right.sst.id:
        return None
    first, last = _visible(left), _visible(right)
    if not are_adjacent(first, last):
        return None
    whole = joined(first, last)
    return replace(left, visible_range=None if is_within(left.sst.info.physical_range, whole) else whole)


def merged_run(parts: Iterable[SstView]) -> tuple[SstView, ...]:
    """Merge adjacent views of one SST; ``parts`` is in key order."""
    views: list[SstView] = []
    for view in parts:
        whole = merged_view(views[-1], view) if views else None
        if whole is None:
            views.append(view)
        else:
            views[-1] = whole
    return tuple(views)


def _visible(view: SstView) -> KeyRange:
    return view.visible_range if view.visible_range is not None else EVERYTHING


@dataclass(slots=True)
class _Nodes:
    """A precedence graph of views; a new view is merged into an adjacent view of the same SST."""

    views: list[SstView] = field(default_factory=list)
    _of_sst: dict[Ulid, list[int]] = field(default_factory=lambda: defaultdict(list))
    _older: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))

    def add(self, view: SstView) -> int:
        """Add a view; return its index, or that of the view that it was merged into."""
        for index in self._of_sst[view.sst.id]:
            left, right = sorted((self.views[index], view), key=lambda part: start_order(part.effective_range))
            whole = merged_view(left, right)
            if whole is not None:
                self.views[index] = whole
                return index
        self.views.append(view)
        self._of_sst[view.sst.id].append(len(self.views) - 1)
        return len(self.views) - 1

    def newer_than(self, order: Sequence[int]) -> None:
        """Record that each of these views takes precedence over the next."""
        for newer, older in itertools.pairwise(order):
            self._older[newer].add(older)

    def sorted(self) -> list[int] | None:
        """Return all indexes, newest first, unrelated views by the time of their SSTs; ``None`` if there is a cycle."""
        newer_count = [0] * len(self.views)
        for older in self._older.values():
            for index in older:
                newer_count[index] += 1
        ready = [(-self.views[index].sst.id, index) for index, count in enumerate(newer_count) if not count]
        heapq.heapify(ready)
        order: list[int] = []
        while ready:
            _, newest = heapq.heappop(ready)
            order.append(newest)
            for index in sorted(self._older[newest]):
                newer_count[index] -= 1
                if not newer_count[index]:
                    heapq.heappush(ready, (-self.views[index].sst.id, index))
        return order if len(order) == len(self.views) else None
