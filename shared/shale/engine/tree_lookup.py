"""The SSTs of one tree as point lookups see them: levels of views in order of precedence, and their address table.

Made once per manifest and never changed; what changes is what the slots hold in memory.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from shale.engine.hot_path import Lookup, LookupMany
from shale.errors import CorruptionError
from shale.format.block_plain import decode_block_plain
from shale.kernels import lookup_layout as layout
from shale.kernels.rows import I64
from shale.sst.meta import SstMeta
from shale.sst.reader import SstReader
from shale.sst.slot import SstSlot, address_of
from shale.types import U64_MAX, Entry, KeyRange, SstView, Tree

_LANES = np.zeros((layout.LANES, layout.OUT_WORDS), np.int64)
"""Where the kernel keeps many searches at once: nobody else runs meanwhile, since it holds the interpreter lock."""
_LANES_ADDRESS = address_of(_LANES)


class Window(NamedTuple):
    """One view: its slot and the keys ``[first_key, end_key)`` that it shows; ``None``: no end."""

    slot: SstSlot
    first_key: bytes
    end_key: bytes | None

    def shows(self, key: bytes) -> bool:
        """Whether the view can show the key."""
        return self.first_key <= key and (self.end_key is None or key < self.end_key)


class Level:
    """An L0 or a sorted run: windows in key order.  Neighbours may share one key, the left one has it newer."""

    __slots__ = ("_first_keys", "windows")

    def __init__(self, windows: Sequence[Window]) -> None:
        self.windows = tuple(windows)
        self._first_keys = [window.first_key for window in self.windows]

    def candidates(self, key: bytes) -> Sequence[Window]:
        """The windows that show the key, newest first."""
        last = bisect_right(self._first_keys, key)
        first = last
        while first > 0 and self.windows[first - 1].shows(key):
            first -= 1
        return self.windows[first:last]


class TreeLookup:
    """Every level of a tree, newest first, and the table that the lookup kernel walks."""

    __slots__ = (
        "_counts",
        "_keys",
        "_level_table",
        "_slots",
        "_views",
        "count",
        "levels",
        "out",
        "out_address",
        "table",
        "tree",
    )

    def __init__(self, tree: Tree, reader: SstReader) -> None:
        self.tree = tree
        self._counts = reader.counts.kernel
        runs = [*((view,) for view in tree.l0), *(run.ssts for run in tree.compacted)]
        shown = [views for views in map(_shown, runs) if views]
        levels = [Level([_window(view, reader) for view in views]) for views in shown]
        self.levels = tuple(levels)
        self.count = len(self.levels)
        self._slots = [[window.slot for window in level.windows] for level in levels]
        self._build_table([view.effective_range for views in shown for view in views])

    def candidates(self, key: bytes) -> Iterator[Window]:
        """The windows that show the key, in order of precedence."""
        for level in self.levels:
            yield from level.candidates(key)

    def find(self, lookup: Lookup, key: bytes, max_seq: int) -> Entry | int:
        """The newest row of a key at or below ``max_seq``, or the status of the kernel where there is none."""
        status = lookup(key, max_seq, self.table, self.count, self.out_address)
        if status != layout.FOUND:
            return status
        level, window, block, at, size, seq, flags, create_ts, expire_ts = self.out.tolist()
        value = self._slots[level][window].images[block][at : at + size]
        return tuple.__new__(Entry, (key, value, seq & U64_MAX, flags, create_ts, expire_ts))

    def record(self, max_seq: int) -> I64:
        """What the kernel takes for lookups of values up to a sequence number."""
        words = np.zeros(layout.RECORD_WORDS, np.int64)
        words[layout.RECORD_TABLE] = self.table
        words[layout.RECORD_LEVELS] = self.count
        words[layout.RECORD_OUT] = self.out_address
        words.view(np.uint64)[layout.RECORD_MAX_SEQ] = max_seq
        return words

    def find_values(
        self, lookup_many: LookupMany, keys: list[bytes], max_seq: int
    ) -> tuple[list[bytes | int | None], bool]:
        """The values of many keys, ``None`` for those that have none, else what has to be done for a key.

        That is ``NEED_META``, ``NEED_BLOCK`` or ``CORRUPT``, or ``FOUND`` for a merge operand; and whether there is
        nothing to be done.
        """
        answers: list[bytes | int | None] = [None] * len(keys)
        undecided = lookup_many(
            keys, answers, len(keys), max_seq, self.table, self.count, _LANES_ADDRESS, self.out_address
        )
        return answers, undecided == 0

    def _build_table(self, ranges: Sequence[KeyRange]) -> None:
        keys = bytearray()
        views = np.zeros((max(1, len(ranges)), layout.VIEW_WORDS), np.int64)
        starts = []
        for record, key_range in zip(views, ranges, strict=False):
            start, end = key_range.start, key_range.end
            starts.append((len(keys), len(keys) + len(start.key or b"")))
            keys += (start.key or b"") + (end.key or b"")
            record[layout.VIEW_START_LEN] = -1 if start.key is None else len(start.key)
            record[layout.VIEW_START_EXCLUDED] = start.kind.value == 3
            record[layout.VIEW_END_LEN] = -1 if end.key is None else len(end.key)
            record[layout.VIEW_END_INCLUDED] = end.kind.value == 2
        self._keys = np.frombuffer(bytes(keys) or b"\0", np.uint8)
        base = address_of(self._keys)
        windows = (window for level in self.levels for window in level.windows)
        for record, (start_at, end_at), window in zip(views, starts, windows, strict=False):
            record[layout.VIEW_START] = base + start_at
            record[layout.VIEW_END] = base + end_at
            record[layout.VIEW_SLOT] = address_of(window.slot.words)
        self._views = views
        self._level_table = np.zeros((max(1, self.count), layout.LEVEL_WORDS), np.int64)
        at = address_of(views)
        for row, level in zip(self._level_table, self.levels, strict=False):
            row[layout.LEVEL_VIEWS] = at
            row[layout.LEVEL_COUNT] = len(level.windows)
            at += len(level.windows) * layout.VIEW_WORDS * 8
        self.table = address_of(self._level_table)
        out = self._counts
        self.out = out[: layout.OUT_EXPIRE_TS + 1].data
        self.out_address = address_of(out)


def block_span(meta: SstMeta, key: bytes) -> tuple[int, int] | None:
    """The blocks ``[first, last)`` that can hold the key; ``None`` if the filters exclude it."""
    return meta.index.block_range_for_key(key) if meta.filters.may_contain_key(key) else None


def append_versions(found: list[Entry], key: bytes, max_seq: int, *, image: bytes, slot: SstSlot, offset: int) -> bool:
    """Append the versions of a key in one block, newest first; true when a version ends the search.

    A value or a tombstone does, since nothing below it is visible; a merge operand does not.

    Raises:
        CorruptionError: the block, which begins at byte ``offset`` of the file, is malformed.
    """
    try:
        entries = decode_block_plain(image, slot.sst.format_version)
    except CorruptionError as error:
        error.offset = offset + (error.offset or 0)
        raise error.at(slot.path) from None
    for entry in entries:
        if entry.key == key and entry.seq <= max_seq:
            found.append(entry)
            if not entry.is_merge:
                return True
    return False


def _shown(views: Sequence[SstView]) -> list[SstView]:
    """Views without those that show nothing, as a projection may leave them: their bounds are in no order."""
    return [view for view in views if not view.effective_range.is_empty]


def _window(view: SstView, reader: SstReader) -> Window:
    visible = view.effective_range
    return Window(reader.slot(view.sst), visible.first_key or b"", visible.end_key)
