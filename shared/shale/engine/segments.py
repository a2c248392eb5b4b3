"""Segments at write time: which tree a key belongs to, and which prefixes may stand beside each other.

A segment is the tree of all keys with one prefix.  Prefixes never nest, so a key has one tree, and the rows of a
segment lie together in key order.

Source: docs/protocol.md 4.1.3, 4.5, 4.6; SlateDB rfcs/0024-segment-oriented-compaction.md.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from shale.engine.sorted_part import SortedPart
from shale.errors import (
    EmptySegmentPrefix,
    InvalidRequestError,
    InvalidSegmentPrefix,
    SegmentExtractorMismatch,
    SegmentPrefixNotRecognized,
)
from shale.format.bloom import DelimitedPrefix, FixedPrefix, PrefixExtractor
from shale.types import KeyRange, Manifest

ROOT_TREE: tuple[bytes, ...] = (b"",)
"""What a table touches in a database without an extractor."""

_SHOWN_BYTES = 40


def require_extractor(manifest: Manifest, extractor: PrefixExtractor | None, root: str) -> None:
    """Return if this extractor made the database's segments.

    Raises:
        SegmentExtractorMismatch: another one did, or none, or there is none now.
        SegmentPrefixNotRecognized: it has the right name, but does not know a segment that exists.
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
    """The prefix of the segment that a key belongs to.

    Raises:
        EmptySegmentPrefix: it belongs to none.
        InvalidRequestError: the extractor gave an impossible length.
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
    """The segments that sorted rows touch, ascending: one call of the extractor each, not one per row.

    Raises:
        EmptySegmentPrefix: a row belongs to none.
    """
    prefixes: list[bytes] = []
    place = 0
    while place < len(part):
        prefix = segment_of(extractor, part.key_at(place))
        prefixes.append(prefix)
        end = KeyRange.with_prefix(prefix).end_key
        place = len(part) if end is None else part.place_of(end)
    return prefixes


def require_no_nesting(prefix: bytes, others: Sequence[bytes]) -> bool:
    """Whether ``prefix`` is among ``others``, which ascend and do not nest.

    Raises:
        InvalidSegmentPrefix: it is not, and nests with one of them.
    """
    place = bisect_left(others, prefix)
    # Only neighbours can nest: whatever lies between a prefix and what begins with it begins with it too.
    if place < len(others):
        if others[place] == prefix:
            return True
        if others[place].startswith(prefix):
            raise _nesting(prefix, others[place])
    if place and prefix.startswith(others[place - 1]):
        raise _nesting(prefix, others[place - 1])
    return False


class SegmentRouter:
    """The segments that the active memtable touches, and the check of every write before anything has changed.

    Args:
        extractor: of the database.
        older: the segments of frozen memtables and of the manifest, one ascending sequence each.
    """

    __slots__ = ("_extractor", "_older", "_touched")

    def __init__(self, extractor: PrefixExtractor, older: Callable[[], Iterable[Sequence[bytes]]]) -> None:
        self._extractor = extractor
        self._older = older
        self._touched: list[bytes] = []

    def admit(self, key: bytes) -> None:
        """Let a write of one key through, and note its segment; whoever calls appends the row at once.

        Raises:
            EmptySegmentPrefix: the key belongs to no segment.
            InvalidSegmentPrefix: its segment would nest with one that exists.
        """
        prefix = segment_of(self._extractor, key)
        if not self._is_touched(prefix):
            self._require_room(prefix)
            insort(self._touched, prefix)

    def admit_all(self, prefixes: Iterable[bytes]) -> None:
        """The same for the segments of a batch: all of them, or none.

        Raises:
            InvalidSegmentPrefix: one would nest with one that exists, or with another one of the batch.
        """
        new = sorted({prefix for prefix in prefixes if not self._is_touched(prefix)})
        for left, right in pairwise(new):
            if right.startswith(left):
                raise _nesting(right, left)
        for prefix in new:
            self._require_room(prefix)
        self._touched = sorted([*self._touched, *new])

    @property
    def known(self) -> list[bytes]:
        """Every segment that exists, in memory or in the manifest, ascending."""
        return sorted({*self._touched, *(prefix for prefixes in self._older() for prefix in prefixes)})

    def segments_of(self, keys: Iterable[bytes]) -> set[bytes]:
        """The segments of a batch's keys.

        Raises:
            EmptySegmentPrefix: a key belongs to none.
        """
        return {segment_of(self._extractor, key) for key in keys}

    def segments_of_columns(self, part: SortedPart) -> list[bytes]:
        """The segments of sorted rows that are being written; takes milliseconds if the extractor is the user's.

        Only of extractors whose prefixes cannot nest is it known that all keys with a prefix belong to its segment.

        Raises:
            EmptySegmentPrefix: a key belongs to none.
        """
        if isinstance(self._extractor, FixedPrefix | DelimitedPrefix):
            return self.segments_in(part)
        return sorted(self.segments_of(map(part.key_at, range(len(part)))))

    def segments_in(self, part: SortedPart) -> list[bytes]:
        """The segments of sorted rows; see ``segments_in`` of this module."""
        return segments_in(self._extractor, part)

    def take(self) -> tuple[bytes, ...]:
        """What the memtable that is being frozen touches; the next one begins with nothing."""
        touched, self._touched = tuple(self._touched), []
        return touched

    def restore(self, prefixes: Iterable[bytes]) -> None:
        """Note what a replayed memtable touches; its prefixes were checked when they were written."""
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
