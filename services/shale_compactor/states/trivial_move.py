"""A merge without merging: sources that do not overlap become one run as they are (docs/protocol.md 6.8)."""

import itertools

from shale.types import KeyRange, SstView


def plan_trivial_move(views: tuple[SstView, ...]) -> tuple[SstView, ...] | None:
    """Order the views by key if their effective ranges are disjoint; ``None`` if two of them share a key.

    Views that show nothing come first; they cannot overlap anything.
    """
    ranked = sorted(views, key=lambda view: _start(view.effective_range))
    shown = [view.effective_range for view in ranked if not view.effective_range.is_empty]
    for left, right in itertools.pairwise(shown):
        if not left.intersect(right).is_empty:
            return None
    return tuple(ranked)


def _start(keys: KeyRange) -> tuple[bool, bytes]:
    if keys.is_empty:
        return (False, b"")
    first = keys.first_key
    return (True, b"" if first is None else first)
