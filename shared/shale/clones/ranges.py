"""Key ranges of views: hulls, adjacency, and the keys that a view of a sorted run covers.

Source: docs/reference/protocol.md 11.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from shale.types import UNBOUNDED, Bound, BoundKind, KeyRange, SstView, excluded, included


def hull(ranges: Iterable[KeyRange]) -> KeyRange | None:
    """Return the smallest range that contains all non-empty ranges; ``None`` if there is none."""
    present = [keys for keys in ranges if not keys.is_empty]
    if not present:
        return None
    first, last = min(present, key=start_order), max(present, key=_end_order)
    return KeyRange(first.start, last.end)


def hull_of_views(views: Iterable[SstView]) -> KeyRange | None:
    """Return the hull of the effective ranges of views."""
    return hull(view.effective_range for view in views)


def common_range(taken: Sequence[KeyRange | None]) -> KeyRange | None:
    """Return the keys that the clone shows: those of all sources and between them.

    ``None``: all keys, if a source is not limited, or if the ranges are disjoint from the common one, so that the clone
    is an empty database.
    """
    ranges = [keys for keys in taken if keys is not None]
    return hull(ranges) if len(ranges) == len(taken) else None


def is_within(inner: KeyRange, outer: KeyRange) -> bool:
    """Return whether each key of ``inner`` is in ``outer``."""
    return inner.is_empty or inner.intersect(outer) == inner


def start_order(keys: KeyRange) -> bytes:
    """Sort key for ranges that do not overlap."""
    return keys.first_key or b""


def _end_order(keys: KeyRange) -> tuple[bool, bytes]:
    return keys.end_key is None, keys.end_key or b""


def are_adjacent(left: KeyRange, right: KeyRange) -> bool:
    """Return whether ``right`` starts exactly where ``left`` ends: no key is between them, and none is in both."""
    return left.end_key is not None and left.end_key == (right.first_key or b"")


def joined(left: KeyRange, right: KeyRange) -> KeyRange:
    """Join two adjacent ranges."""
    return KeyRange(left.start, right.end)


def with_stored_start(keys: KeyRange) -> KeyRange:
    """Return the same keys with a start bound that a manifest can store: included or unbounded."""
    if keys.start.kind is not BoundKind.EXCLUDED:
        return keys
    assert keys.first_key is not None
    return replace(keys, start=included(keys.first_key))


def covered_in_run(view: SstView, own: KeyRange, after: KeyRange | None) -> KeyRange:
    """Return the keys that a view of a sorted run covers: from its start to the start of the next view.

    Versions of one key may be split over two adjacent views (docs/reference/protocol.md 6.11).  Both then cover that
    key: a range that ended before it would hide the newest versions.

    Args:
        own, after: the effective ranges of the view and of the next one.
    """
    window = KeyRange(own.start, _end_before(own, after))
    return window if view.visible_range is None else window.intersect(view.visible_range)


def _end_before(own: KeyRange, after: KeyRange | None) -> Bound:
    if after is None:
        return own.end
    start = after.first_key
    if start is None:
        return UNBOUNDED
    return included(start) if own.contains(start) else excluded(start)
