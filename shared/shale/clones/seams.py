"""Putting views of one SST together again where a projection has cut it.

Only views without a gap between them: what lies in a gap was deleted.  Never across the border between L0 and runs, nor
between two runs, and never against the order in which the L0s of any source override each other.

Source: docs/protocol.md 11.2, rule 8.
"""

import heapq
import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from shale.clones.ranges import are_adjacent, is_within, joined, start_order
from shale.types import EVERYTHING, KeyRange, SstView, Ulid


def merged_l0(lists: Sequence[Sequence[SstView]]) -> tuple[SstView, ...] | None:
    """The L0 lists of sources as one, with adjacent views of an SST as one view.

    Returns:
        Newest first; ``None`` if the sources contradict each other about which SST is newer.
    """
    nodes = _Nodes()
    for views in lists:
        nodes.newer_than([nodes.add(view) for view in views])
    order = nodes.sorted()
    return None if order is None else tuple(nodes.views[index] for index in order)


def joined_view(left: SstView, right: SstView) -> SstView | None:
    """Two views of one SST as one; ``None`` if they are of two SSTs, or not adjacent."""
    if left.sst.id != right.sst.id:
        return None
    first, last = _visible(left), _visible(right)
    if not are_adjacent(first, last):
        return None
    whole = joined(first, last)
    return replace(left, visible_range=None if is_within(left.sst.info.physical_range, whole) else whole)


def joined_run(parts: Iterable[SstView]) -> tuple[SstView, ...]:
    """Views in the order of their keys, those at a seam as one."""
    views: list[SstView] = []
    for view in parts:
        whole = joined_view(views[-1], view) if views else None
        if whole is None:
            views.append(view)
        else:
            views[-1] = whole
    return tuple(views)


def _visible(view: SstView) -> KeyRange:
    return view.visible_range if view.visible_range is not None else EVERYTHING


@dataclass(slots=True)
class _Nodes:
    """Views to be put into one order; a later part of an SST joins the part that is there, if it can."""

    views: list[SstView] = field(default_factory=list)
    _of_sst: dict[Ulid, list[int]] = field(default_factory=lambda: defaultdict(list))
    _older: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))

    def add(self, view: SstView) -> int:
        """The place of a view, or of the whole that it has become part of."""
        for index in self._of_sst[view.sst.id]:
            left, right = sorted((self.views[index], view), key=lambda part: start_order(part.effective_range))
            whole = joined_view(left, right)
            if whole is not None:
                self.views[index] = whole
                return index
        self.views.append(view)
        self._of_sst[view.sst.id].append(len(self.views) - 1)
        return len(self.views) - 1

    def newer_than(self, order: Sequence[int]) -> None:
        """Each of these overrides the next."""
        for newer, older in itertools.pairwise(order):
            self._older[newer].add(older)

    def sorted(self) -> list[int] | None:
        """All places, newest first, those that have no order by the time of their SSTs; ``None`` for a circle."""
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
