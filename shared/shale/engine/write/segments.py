"""Segments at write time: the tree that a key belongs to, and the check that prefixes do not nest.

A segment is the tree of all keys with one prefix.  Prefixes never nest, so every key has one tree, and the rows of a
segment are adjacent in key order.

Source: docs/reference/protocol.md 4.1.3, 4.5, 4.6; SlateDB rfcs/0024-segment-oriented-compaction.md.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from shale.engine.memtable.sorted_part import SortedPart
from shale.errors import (
    EmptySegmentPrefix,
    InvalidRequestError,
    InvalidSegmentPrefix,
    SegmentExtractorMismatch,
    SegmentPrefixNotRecognized,
)
from shale.format.sst.filter_policy import DelimitedPrefix, FixedPrefix, PrefixExtractor
from shale.types import KeyRange, Manifest

ROOT_TREE: tuple[bytes, ...] = (b"",)
"""The segments of a table in a database without an extractor."""

_SHOWN_BYTES = 40


def require_extractor(manifest: Manifest, extractor: PrefixExtractor | None, root: str) -> None:
    """Require that this extractor made the database's segments.

    Raises:
        SegmentExtractorMismatch: the name of the extractor is not the stored one.
        SegmentPrefixNotRecognized: the name matches, but the extractor does not recognise an existing segment.
    """
    stored = manifest.segment_extractor_name
    given = None if extractor is None else extractor.name
    if stored != given or (extractor is None and manifest.segments):
        raise SegmentExtractorMismatch(
            f"the database at {root or '/'} is segmented by {stored!r}, and this writer's extractor is {given!r}"
        )
    if extractor is None:
        return
    for segment in manifest.segments:
        if extractor.scan_prefix_len(segment.prefix) != len(segment.prefix):
            raise SegmentPrefixNotRecognized(
                f"the database at {root or '/'} has the segment {_shown(segment.prefix)}, "
                f"which the extractor {given!r} does not take for a whole prefix"
            )


def segment_of(extractor: PrefixExtractor, key: bytes) -> bytes:
    """Return the prefix of a key's segment.

    Raises:
        EmptySegmentPrefix: the key belongs to no segment.
        InvalidRequestError: the extractor returned an impossible length.
    """
    length = extractor.prefix_len(key)
    if not length:
        raise EmptySegmentPrefix(f"the extractor {extractor.name!r} gives no prefix for the key {_shown(key)}")
    if not 0 < length <= len(key):
        raise InvalidRequestError(
            f"the extractor {extractor.name!r} gives the length {length} for a key of {len(key)} bytes"
        )
    return key[:length]


def segments_in(extractor: PrefixExtractor, part: SortedPart) -> list[bytes]:
    """Return the segments of sorted rows, ascending, with one call of the extractor per segment.

    Raises:
        EmptySegmentPrefix: a row belongs to no segment.
    """
    prefixes: list[bytes] = []
    place = 0
    while place < len(part):
        prefix = segment_of(extractor, part.key_at(place))
        prefixes.append(prefix)
        end = KeyRange.with_prefix(prefix).end_key
        place = len(part) if end is None else part.lower_bound(end)
    return prefixes


def require_no_nesting(prefix: bytes, others: Sequence[bytes]) -> bool:
    """Return whether ``prefix`` is among ``others``, which ascend and do not nest.

    Raises:
        InvalidSegmentPrefix: it is not among them, and nests with one of them.
    """
    place = bisect_left(others, prefix)
    # It is enough to check the neighbours: all keys between a prefix and a key that starts with it start with it.
    if place < len(others):
        if others[place] == prefix:
            return True
        if others[place].startswith(prefix):
            raise _nesting(prefix, others[place])
    if place and prefix.startswith(others[place - 1]):
        raise _nesting(prefix, others[place - 1])
    return False


class SegmentRouter:
    """The segments of the active memtable, and the check of every write before anything has changed.

    Args:
        extractor: the database's extractor.
        older: returns the segments of each frozen memtable and of the manifest, each ascending.
        on_touched: called after the active memtable got a segment.
    """

    __slots__ = ("_extractor", "_older", "_on_touched", "_touched")

    def __init__(
        self,
        extractor: PrefixExtractor,
        older: Callable[[], Iterable[Sequence[bytes]]],
        on_touched: Callable[[], None] = lambda: None,
    ) -> None:
        self._extractor = extractor
        self._older = older
        self._on_touched = on_touched
        self._touched: list[bytes] = []

    def admit(self, key: bytes) -> None:
        """Check a write of one key and record its segment; the caller appends the row without an await in between.

        Raises:
            EmptySegmentPrefix: the key belongs to no segment.
            InvalidSegmentPrefix: its segment would nest with an existing one.
        """
        prefix = segment_of(self._extractor, key)
        if not self._is_touched(prefix):
            self._require_room(prefix)
            insort(self._touched, prefix)
            self._on_touched()

    def admit_all(self, prefixes: Iterable[bytes]) -> None:
        """Check and record the segments of a batch, all or none.

        Raises:
            InvalidSegmentPrefix: a segment would nest with an existing one, or with another one of the batch.
        """
        new = sorted({prefix for prefix in prefixes if not self._is_touched(prefix)})
        for left, right in pairwise(new):
            if right.startswith(left):
                raise _nesting(right, left)
        for prefix in new:
            self._require_room(prefix)
        if new:
            self._touched = sorted([*self._touched, *new])
            self._on_touched()

    @property
    def known(self) -> list[bytes]:
        """Every segment that exists, in memory or in the manifest, ascending."""
        return sorted({*self._touched, *(prefix for prefixes in self._older() for prefix in prefixes)})

    def segments_of(self, keys: Iterable[bytes]) -> set[bytes]:
        """Return the segments of a batch's keys.

        Raises:
            EmptySegmentPrefix: a key belongs to no segment.
        """
        return {segment_of(self._extractor, key) for key in keys}

    def segments_of_columns(self, part: SortedPart) -> list[bytes]:
        """Return the segments of sorted rows that are being written; takes milliseconds with a user's extractor.

        A user's extractor is called for every row: only built-in extractors are known to map all keys with a prefix
        to its segment.

        Raises:
            EmptySegmentPrefix: a key belongs to no segment.
        """
        if isinstance(self._extractor, FixedPrefix | DelimitedPrefix):
            return self.segments_in(part)
        return sorted(self.segments_of(map(part.key_at, range(len(part)))))

    def segments_in(self, part: SortedPart) -> list[bytes]:
        """Return the segments of sorted rows; see ``segments_in`` of this module."""
        return segments_in(self._extractor, part)

    def take(self) -> tuple[bytes, ...]:
        """Return the segments of the memtable that is being frozen, and start with none for the next one."""
        touched, self._touched = tuple(self._touched), []
        return touched

    def restore(self, prefixes: Iterable[bytes]) -> None:
        """Set the segments of a replayed memtable; its prefixes were checked when they were written."""
        self._touched = sorted(prefixes)

    def _is_touched(self, prefix: bytes) -> bool:
        place = bisect_right(self._touched, prefix)
        return place > 0 and self._touched[place - 1] == prefix

    def _require_room(self, prefix: bytes) -> None:
        if require_no_nesting(prefix, self._touched):
            return
        for prefixes in self._older():
            if require_no_nesting(prefix, prefixes):
                return


def _nesting(prefix: bytes, other: bytes) -> InvalidSegmentPrefix:
    return InvalidSegmentPrefix(f"the segment prefix {_shown(prefix)} nests with the segment {_shown(other)}")


def _shown(data: bytes) -> str:
    return repr(data[:_SHOWN_BYTES])[1:] + ("" if len(data) <= _SHOWN_BYTES else f"… ({len(data)} bytes)")
