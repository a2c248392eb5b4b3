"""Ranges of keys that views cover: hulls, neighbours, and what a view of a sorted run is responsible for.

Source: docs/protocol.md 11.
"""

from collections.abc import Iterable
from dataclasses import replace

from shale.types import UNBOUNDED, Bound, BoundKind, KeyRange, SstView, excluded, included


def hull(ranges: Iterable[KeyRange]) -> KeyRange | None:
    """The smallest range that holds all of them; empty ones do not count, and of nothing there is no hull."""
    present = [keys for keys in ranges if not keys.is_empty]
    if not present:
        return None
    first, last = min(present, key=start_order), max(present, key=_end_order)
    return KeyRange(first.start, last.end)


def hull_of_views(views: Iterable[SstView]) -> KeyRange | None:
    """The keys between the first and the last that the views can show."""
    return hull(view.effective_range for view in views)


def is_within(inner: KeyRange, outer: KeyRange) -> bool:
    """Whether every key of ``inner`` is in ``outer``."""
    return inner.is_empty or inner.intersect(outer) == inner


def start_order(keys: KeyRange) -> bytes:
    """By which ranges that do not overlap are put into the order of their keys."""
    return keys.first_key or b""


def _end_order(keys: KeyRange) -> tuple[bool, bytes]:
    return keys.end_key is None, keys.end_key or b""


def are_adjacent(left: KeyRange, right: KeyRange) -> bool:
    """Whether ``right`` begins exactly where ``left`` ends: no key between them, none in both."""
    return left.end_key is not None and left.end_key == (right.first_key or b"")


def joined(left: KeyRange, right: KeyRange) -> KeyRange:
    """Two adjacent ranges as one."""
    return KeyRange(left.start, right.end)


def with_stored_start(keys: KeyRange) -> KeyRange:
    """The same keys with a start that a view can have: included or unbounded."""
    if keys.start.kind is not BoundKind.EXCLUDED:
        return keys
    assert keys.first_key is not None
    return replace(keys, start=included(keys.first_key))


def covered_in_run(view: SstView, own: KeyRange, after: KeyRange | None) -> KeyRange:
    """The keys for which a view of a sorted run is responsible: from its start to that of the next view.

    Versions of one key may lie in two neighbours (docs/protocol.md 6.11).  Then both are responsible for that key: a
    range that stopped in front of it would hide the newest versions.

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
