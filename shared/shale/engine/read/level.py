"""One L0 or sorted run as point lookups see it: its SSTs in key order, and the records that the lookup kernel walks."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from shale.kernels.columns import address_of
from shale.kernels.layout import point_lookup as layout
from shale.kernels.rows import I64
from shale.sst.reader import SstReader
from shale.sst.slot import SstSlot
from shale.types import KeyRange, SstView, Tree

LevelSource: TypeAlias = SstView | tuple[SstView, ...]
"""An L0, or the SSTs of a run."""


class VisibleSst(NamedTuple):
    """An SST and the keys ``[first_key, end_key)`` that its view shows; ``None``: no end."""

    slot: SstSlot
    first_key: bytes
    end_key: bytes | None

    def shows(self, key: bytes) -> bool:
        """Whether the view can show the key."""
        return self.first_key <= key and (self.end_key is None or key < self.end_key)


class Level:
    """An L0 or a sorted run: SSTs in key order.

    Two neighbours may share one key; the left one has its newer versions.  A level never changes, so the next manifest
    with the same run takes it over: ``source``.
    """

    __slots__ = ("_data_bytes", "_first_keys", "_keys", "records", "slots", "source", "ssts")

    def __init__(self, source: LevelSource, reader: SstReader) -> None:
        self.source = source
        shown = []
        for view in (source,) if isinstance(source, SstView) else source:
            visible = view.effective_range
            # A projection may leave views that show nothing: their bounds are in no order.
            if not visible.is_empty:
                shown.append((reader.slot(view.sst), visible))
        self.slots = [slot for slot, _ in shown]
        self.ssts = tuple(VisibleSst(slot, keys.first_key or b"", keys.end_key) for slot, keys in shown)
        self._first_keys = [sst.first_key for sst in self.ssts]
        self._keys = np.frombuffer(b"".join(_bound_keys(shown)) or b"\0", np.uint8)
        self.records: I64 = self._records([keys for _, keys in shown])
        self._data_bytes = -1

    @property
    def data_bytes(self) -> int:
        """The stored bytes of all blocks."""
        if self._data_bytes < 0:
            self._data_bytes = sum(slot.sst.info.data_len for slot in self.slots)
        return self._data_bytes

    def candidates(self, key: bytes) -> Sequence[VisibleSst]:
        """Return the SSTs that show the key, newest versions first."""
        last = bisect_right(self._first_keys, key)
        first = last
        while first > 0 and self.ssts[first - 1].shows(key):
            first -= 1
        return self.ssts[first:last]

    def _records(self, ranges: Sequence[KeyRange]) -> I64:
        records = np.zeros((len(ranges), layout.VIEW_WORDS), np.int64)
        start_lens = np.array([_length(each.first_key) for each in ranges], np.int64)
        end_lens = np.array([_length(each.end_key) for each in ranges], np.int64)
        start_sizes, end_sizes = np.maximum(start_lens, 0), np.maximum(end_lens, 0)
        after = address_of(self._keys) + np.cumsum(start_sizes + end_sizes)
        records[:, layout.VIEW_START] = after - end_sizes - start_sizes
        records[:, layout.VIEW_START_LEN] = start_lens
        records[:, layout.VIEW_END] = after - end_sizes
        records[:, layout.VIEW_END_LEN] = end_lens
        records[:, layout.VIEW_SLOT] = [address_of(slot.words) for slot in self.slots]
        return records


def levels_of(tree: Tree, reader: SstReader, known: Sequence[Level]) -> list[Level]:
    """Return the levels of a tree that show anything, newest first; those of ``known`` are used again."""
    reusable = {id(level.source): level for level in known}
    sources: list[LevelSource] = [*tree.l0, *(run.ssts for run in tree.compacted)]
    levels = (reusable.get(id(source)) or Level(source, reader) for source in sources)
    return [level for level in levels if level.ssts]


def _bound_keys(shown: Sequence[tuple[SstSlot, KeyRange]]) -> list[bytes]:
    return [key for _, keys in shown for key in (keys.first_key or b"", keys.end_key or b"")]


def _length(key: bytes | None) -> int:
    return -1 if key is None else len(key)
