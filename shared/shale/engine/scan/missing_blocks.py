"""Blocks that a scan misses in memory, by reads that do not wait, as from local files in the page cache.

A scan of few rows keeps them in the cache.  A long one would evict the blocks of lookups, so it reads them into windows
of its own: the stored bytes of some neighbouring blocks, one window for each level, which the kernel reads in place.
"""

from bisect import bisect_left, bisect_right
from struct import Struct
from typing import TYPE_CHECKING, Any

import numpy as np

from shale.engine.read.super_version import SuperVersion
from shale.engine.read.tree_lookup import TreeLookup
from shale.engine.scan.cached_rows import WantedRows, append_cached, last_misses
from shale.engine.scan.plan import ScanPlan
from shale.kernels.columns import SLACK, address_of
from shale.kernels.layout import point_lookup
from shale.kernels.layout import scan as layout
from shale.kernels.rows import I64, U8
from shale.sst.cache import ENTRY_OVERHEAD_BYTES
from shale.sst.meta import SstMeta
from shale.sst.reader import SstReader
from shale.sst.reads.local_blocks import LocalBlocks
from shale.sst.slot import META, SstSlot

if TYPE_CHECKING:
    from shale.engine.read.level import Level
    from shale.format.sst.index import BlockIndex

_FEW_ROWS = 64
"""A caller that asks for so few rows of a scan without limit may take no more of them."""
_ROWS_OF_ONE_BLOCK = 10
"""For so few rows one block of each level is enough, most of the time."""
_ROWS_MAX = 1024
"""More rows are not read at once."""
_KEPT_BYTES_MAX = 2 << 20
"""A scan keeps no more in the cache,"""
_KEPT_PART = 10
"""and no more than this part of it, which is its queue of new blocks."""
_READ_BYTES_MAX = 256 << 10
_WINDOWS_BYTES_MAX = 2 << 20
_CALL_BYTES_MAX = 1 << 20
"""Bytes read in one call, which other tasks wait for."""
_ROUNDS_MAX = 32
_BLOCK_ROWS = 16
"""Assumed rows of a block of an SST without stats."""
_NO_COUNTS: I64 = np.zeros(point_lookup.OUT_WORDS, np.int64)
_NO_COUNTS_ADDRESS = address_of(_NO_COUNTS)
"""What was counted when it was read is not counted again."""
_WINDOW = Struct(f"={layout.WINDOW_WORDS}q")


class MissingBlocks:
    """What one scan reads where memory has no more."""

    __slots__ = (
        "_bytes_left",
        "_bytes_read",
        "_cache_blocks",
        "_kept",
        "_kept_bytes",
        "_levels",
        "_prefix",
        "_reads",
        "_reverse",
        "_seen",
        "_trees",
        "_windows",
        "_windows_address",
    )

    def __init__(self, plan: ScanPlan) -> None:
        """``plan``: of the scan; reads nothing."""
        self._cache_blocks, self._prefix, self._reverse = plan.cache_blocks, plan.prefix, plan.reverse
        self._bytes_left = 0
        """Bytes that this call may still read."""
        self._bytes_read = self._kept_bytes = 0
        self._kept: list[tuple[bytearray, int, int]] = []
        """What this call has put into the cache."""
        self._seen: set[tuple[int, int, int]] = set()
        """What was missing in this call: what is missing again does not stay in the cache."""
        self._follow([])

    def read_less(self) -> None:
        """Begin with small reads: the scan skips rows."""
        self._kept_bytes = 0
        self._reads = [0] * len(self._levels)

    def take_bytes_read(self) -> int:
        """Return the bytes that were read since the last call."""
        size, self._bytes_read = self._bytes_read, 0
        return size

    def windows(self, view: SuperVersion, wanted: WantedRows) -> int:
        """Return the windows for ``append_cached``."""
        if self._windows is None or view.trees.lookups_between(wanted.start, wanted.end) != self._trees:
            return 0
        return self._windows.address

    def append(self, rows: list[Any], view: SuperVersion, wanted: WantedRows, total: int | None) -> int:
        """Go on where ``append_cached`` has just missed something, and return the last answer.

        Args:
            rows: what it has appended.
            view, wanted: its arguments.
            total: rows that the caller probably takes of the scan; ``None``: many.
        """
        trees = view.trees.lookups_between(wanted.start, wanted.end)
        if trees != self._trees:
            self._follow(trees)
        if total is None and wanted.rows_max <= _FEW_ROWS:
            total = wanted.rows_max
        self._bytes_left = _CALL_BYTES_MAX
        self._seen.clear()
        answer, rest = layout.NEED_BLOCK, wanted
        for _ in range(_ROUNDS_MAX):
            misses = last_misses(view)
            if rows:
                rest = _after(wanted, rows, misses.bytes_left)
            left = total if total is None else max(total - len(rows), 1)
            if not all(self._read(view, miss, rest, left) for miss in misses.sources):
                break
            answer = self._append_again(rows, view, rest, misses.walk_left)
            if answer & layout.STATUS_MASK not in layout.MISSED:
                break
        # Being read once is no reason to stay in the cache.
        for touched, first, last in self._kept:
            touched[first:last] = bytes(last - first)
        self._kept.clear()
        return answer

    def _append_again(self, rows: list[Any], view: SuperVersion, wanted: WantedRows, walk_left: int) -> int:
        windows = 0 if self._windows is None else self._windows.address
        counts = _NO_COUNTS_ADDRESS
        return append_cached(rows, view, wanted, walk_left, windows=windows, counts=counts, trees=self._trees)

    def _follow(self, trees: list[TreeLookup]) -> None:
        """Read the levels of these trees from now on."""
        self._trees = trees
        self._levels: list[Level] = [level for tree in trees for level in tree.levels]
        self._reads = [0] * len(self._levels)
        """For each level how often it was read: the more, the larger the next read."""
        self._windows: _Windows | None = None

    def _read(self, view: SuperVersion, miss: tuple[int, int, int], wanted: WantedRows, total: int | None) -> bool:
        """Read what is missing of a level: metadata of an SST, or blocks; return false if that is impossible now."""
        number, sst, block = miss
        slot, reader = self._levels[number].slots[sst], view.reader
        meta = slot.meta
        part = number, sst, block if meta is not None else META
        if part in self._seen:
            return False
        self._seen.add(part)
        if meta is None:
            info = slot.sst.info
            return self._may_read(info.sections_end - info.data_len) and reader.metadata.load_now(slot) is not None
        if self._prefix is not None and not meta.filters.may_contain_prefix(self._prefix):
            return False
        rows = min(wanted.rows_max if total is None else total, _ROWS_MAX)
        first, last = self._span(slot, meta, block, wanted, self._count_blocks(number, meta, rows))
        offsets = meta.index.offsets
        size = int(offsets[last] - offsets[first])
        if size > 2 * _READ_BYTES_MAX or not self._may_read(size):
            return False
        if (
            total is not None
            and size <= _READ_BYTES_MAX
            and self._keeps(reader, slot, meta, size + (last - first) * ENTRY_OVERHEAD_BYTES, total)
        ):
            return self._keep(reader, slot, meta, first, last)
        if not reader.local_blocks.are_images(slot):
            return False
        if self._windows is None:
            self._windows = _Windows(len(self._levels))
        first, last = self._windows.joined(number, (sst, first, last), meta.index, wanted)
        if int(offsets[last] - offsets[first]) > 2 * _READ_BYTES_MAX:
            return False
        return self._windows.fill(number, reader.local_blocks, slot, (sst, first, last))

    def _may_read(self, size: int) -> bool:
        self._bytes_left -= size
        self._bytes_read += size
        return self._bytes_left >= 0

    def _count_blocks(self, number: int, meta: SstMeta, rows: int) -> int:
        """Return how many blocks of a level to read next, if the scan reads so many rows of all levels."""
        reads = self._reads[number]
        self._reads[number] = reads + 1
        if rows <= _ROWS_OF_ONE_BLOCK and not reads:
            return 1
        here = rows * self._levels[number].data_bytes / (sum([level.data_bytes for level in self._levels]) or 1)
        count = 1 + int((here + here**0.5) * len(meta.index) / _rows_of(meta) + 0.5)
        return max(count, 1 << min(reads, 8))

    def _span(self, slot: SstSlot, meta: SstMeta, block: int, wanted: WantedRows, count: int) -> tuple[int, int]:
        """Return the blocks to read: ``count`` from this one on, or to it in a reversed scan, within the range."""
        if count == 1:
            return block, block + 1
        index = meta.index
        blocks, size = len(index), max(min(_READ_BYTES_MAX, _WINDOWS_BYTES_MAX // len(self._levels)), 1)
        count = min(count, max(size * blocks // slot.sst.info.data_len, 1))
        first, last = (max(block + 1 - count, 0), block + 1) if self._reverse else (block, min(block + count, blocks))
        bound = wanted.start if self._reverse else wanted.end
        if last - first > 2 and bound is not None:
            end = bisect_left(index.separators, bound, first, last)
            return (max(first, end - 1), last) if self._reverse else (first, max(first + 1, end))
        return first, last

    def _keeps(self, reader: SstReader, slot: SstSlot, meta: SstMeta, size: int, total: int) -> bool:
        """Return whether to keep blocks of this size in the cache, and count them."""
        self._kept_bytes += size
        if not self._cache_blocks or self._kept_bytes > min(_KEPT_BYTES_MAX, reader.cache.capacity_bytes // _KEPT_PART):
            return False
        return total <= _FEW_ROWS or total * slot.sst.info.data_len <= _KEPT_BYTES_MAX * _rows_of(meta)

    def _keep(self, reader: SstReader, slot: SstSlot, meta: SstMeta, first: int, last: int) -> bool:
        """Read blocks into the cache."""
        if last - first == 1:
            if reader.local_blocks.read_now(slot, meta, first) is None:
                return False
        else:
            first, last = _without_cached(slot, first, last, reverse=self._reverse)
            if first == last:  # another level has read the same SST meanwhile
                return True
            if not reader.local_blocks.read_range_now(slot, meta, first, last):
                return False
        self._kept.append((slot.touched, first, last))
        images = slot.images
        return first in images and last - 1 in images


class _Windows:
    """The windows of all levels."""

    __slots__ = ("_buffers", "_metas", "_spans", "_words", "address")

    def __init__(self, count: int) -> None:
        """Make empty windows."""
        self._words: I64 = np.zeros((count, layout.WINDOW_WORDS), np.int64)
        self.address = address_of(self._words)
        """Where the kernel finds them."""
        self._buffers: list[U8 | None] = [None] * count
        self._metas: list[SstMeta | None] = [None] * count
        """They keep the offsets of blocks alive."""
        self._spans = [(-1, 0, 0)] * count
        """SST, first block and the one after the last."""

    def joined(
        self, number: int, window: tuple[int, int, int], index: "BlockIndex", wanted: WantedRows
    ) -> tuple[int, int]:
        """Return the blocks of the next window of a level, with those read before that the kernel needs again.

        It begins again after the last row that was returned, so it passes the hidden rows after that once more.

        Args:
            number: the level.
            window: the number of the SST, the first block, and the one after the last.
            index: of the SST.
            wanted: the rows to return next.
        """
        sst, first, last = window
        old_sst, old_first, old_last = self._spans[number]
        if old_sst != sst:
            return first, last
        if old_last == first and not wanted.is_reversed:
            start = wanted.start or b""
            first = max(old_first, bisect_left(index.separators, start, old_first, first) - 1)
        if old_first == last and wanted.is_reversed:
            end = wanted.end
            last = old_last if end is None else bisect_right(index.separators, end, last, old_last)
        return first, last

    def fill(self, number: int, blocks: LocalBlocks, slot: SstSlot, window: tuple[int, int, int]) -> bool:
        """Read blocks of a level: the number of the SST, the first block, and the one after the last."""
        sst, first, last = window
        meta, buffer = slot.meta, self._buffers[number]
        assert meta is not None, "its block is missing"
        offsets = meta.index.offsets
        size = int(offsets[last] - offsets[first])
        self._words[number, layout.WINDOW_END] = 0
        self._spans[number] = (-1, 0, 0)
        if buffer is None or len(buffer) < size + SLACK:
            buffer = self._buffers[number] = np.empty(size + SLACK, np.uint8)
        if not blocks.fill(slot, meta, first, last, buffer.data[:size]):
            return False
        self._metas[number], self._spans[number] = meta, window
        place = number * _WINDOW.size
        _WINDOW.pack_into(self._words.data, place, sst, first, last, address_of(buffer), address_of(offsets))
        return True


def _after(wanted: WantedRows, rows: list[Any], bytes_max: int) -> WantedRows:
    """Return what is wanted after these rows."""
    key, rows_max = rows[-1][0], wanted.rows_max - len(rows)
    if wanted.is_reversed:
        return wanted._replace(end=key, rows_max=rows_max, bytes_max=bytes_max)
    return wanted._replace(start=key + b"\0", rows_max=rows_max, bytes_max=bytes_max)


def _without_cached(slot: SstSlot, first: int, last: int, *, reverse: bool) -> tuple[int, int]:
    """Return the blocks up to the next one that is cached; the first in the direction of the scan is not."""
    if reverse:
        return next((block + 1 for block in range(last - 1, first - 1, -1) if block in slot.images), first), last
    return first, next((block for block in range(first, last) if block in slot.images), last)


def _rows_of(meta: SstMeta) -> int:
    rows = 0 if meta.stats is None else meta.stats.num_rows
    return rows or _BLOCK_ROWS * len(meta.index)
