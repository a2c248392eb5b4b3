"""Ranges of keys, with the bounds that the format can store (docs/reference/format.md 2.5)."""

from enum import IntEnum
from typing import Self

from shale.core.lazy_dataclass import dataclass


class BoundKind(IntEnum):
    """``bound_type`` on the wire; 0 is never valid."""

    UNBOUNDED = 1
    INCLUDED = 2
    EXCLUDED = 3


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a range.  ``key`` is present unless the bound is unbounded."""

    kind: BoundKind
    key: bytes | None = None

    def __post_init__(self) -> None:
        assert (self.key is None) == (self.kind is BoundKind.UNBOUNDED)


UNBOUNDED = Bound(BoundKind.UNBOUNDED)


def included(key: bytes) -> Bound:
    """Return a bound that includes its key."""
    return Bound(BoundKind.INCLUDED, key)


def excluded(key: bytes) -> Bound:
    """Return a bound that excludes its key."""
    return Bound(BoundKind.EXCLUDED, key)


def key_after_prefix(prefix: bytes) -> bytes | None:
    """Return the smallest key above every key with this prefix; ``None`` if there is none."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None


@dataclass(frozen=True, slots=True)
class KeyRange:
    """All keys between two bounds."""

    start: Bound = UNBOUNDED
    end: Bound = UNBOUNDED

    @classmethod
    def half_open(cls, start: bytes | None, end: bytes | None) -> Self:
        """Return the keys from ``start``, below ``end``; ``None`` is unbounded."""
        return cls(
            UNBOUNDED if start is None else included(start),
            UNBOUNDED if end is None else excluded(end),
        )

    def __str__(self) -> str:
        """Return the range as an interval, such as ``[b'a', b'b')``; "…" is unbounded."""
        opening = "[" if self.start.kind is BoundKind.INCLUDED else "("
        closing = "]" if self.end.kind is BoundKind.INCLUDED else ")"
        first, last = ("…" if key is None else repr(key) for key in (self.start.key, self.end.key))
        return f"{opening}{first}, {last}{closing}"

    @classmethod
    def with_prefix(cls, prefix: bytes) -> Self:
        """Return the range of all keys that begin with ``prefix``."""
        return cls.half_open(prefix or None, key_after_prefix(prefix))

    def contains(self, key: bytes) -> bool:
        """Return whether the key is in the range."""
        return not self._starts_after(key) and not self._ends_before(key)

    def intersect(self, other: "KeyRange") -> "KeyRange":
        """Return the range of the keys in both; it may be empty."""
        start = max(self.start, other.start, key=_start_order)
        end = min(self.end, other.end, key=_end_order)
        return KeyRange(start, end)

    @property
    def is_empty(self) -> bool:
        """Whether the bounds exclude every key."""
        start, end = self.start, self.end
        if end.key is None:
            return False
        if start.key is None:
            return end.kind is BoundKind.EXCLUDED and end.key == b""
        if start.kind is BoundKind.INCLUDED and end.kind is BoundKind.INCLUDED:
            return start.key > end.key
        if start.kind is BoundKind.EXCLUDED and end.kind is BoundKind.EXCLUDED:
            return start.key + b"\x00" >= end.key
        return start.key >= end.key

    @property
    def first_key(self) -> bytes | None:
        """The smallest key the range can contain; ``None`` if unbounded."""
        if self.start.key is None:
            return None
        return self.start.key + b"\x00" if self.start.kind is BoundKind.EXCLUDED else self.start.key

    @property
    def end_key(self) -> bytes | None:
        """The smallest key above the range, as an exclusive end; ``None`` if unbounded."""
        if self.end.key is None:
            return None
        return self.end.key + b"\x00" if self.end.kind is BoundKind.INCLUDED else self.end.key

    def _starts_after(self, key: bytes) -> bool:
        if self.start.key is None:
            return False
        return key < self.start.key or (self.start.kind is BoundKind.EXCLUDED and key == self.start.key)

    def _ends_before(self, key: bytes) -> bool:
        if self.end.key is None:
            return False
        return key > self.end.key or (self.end.kind is BoundKind.EXCLUDED and key == self.end.key)


EVERYTHING = KeyRange()


def _start_order(bound: Bound) -> tuple[int, bytes, int]:
    if bound.key is None:
        return (0, b"", 0)
    return (1, bound.key, int(bound.kind is BoundKind.EXCLUDED))


def _end_order(bound: Bound) -> tuple[int, bytes, int]:
    if bound.key is None:
        return (1, b"", 0)
    return (0, bound.key, int(bound.kind is BoundKind.INCLUDED))
