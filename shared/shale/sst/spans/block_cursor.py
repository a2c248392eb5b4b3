"""A position in the blocks of one SST, from which spans are read."""

import numpy as np

from shale.kernels.rows import I64
from shale.sst.meta import SstMeta, span_begin, span_end
from shale.sst.slot import SstSlot
from shale.types import KeyRange

_NONE: I64 = np.empty(0, np.int64)


class BlockCursor:
    """A position in the blocks of one SST."""

    __slots__ = ("_last", "_next", "meta", "slot", "visible")

    def __init__(self, slot: SstSlot, meta: SstMeta, visible: KeyRange) -> None:
        self.slot = slot
        self.meta = meta
        self.visible = visible
        self._next, self._last = meta.index.block_range(visible)

    @property
    def is_done(self) -> bool:
        return self._next >= self._last

    @property
    def next_block_bytes(self) -> int:
        """The stored size of the next block of a forward position; after the end that of the last block of the SST."""
        offsets = self.meta.index.offsets
        begin = min(self._next, len(offsets) - 2)
        return int(offsets[begin + 1] - offsets[begin]) if begin >= 0 else 0

    def go_back(self, first: int) -> None:
        """Undo the last step, which began at this block."""
        self._next = first

    def advance(self, size_bytes: int, alone_bytes: int | None = None) -> tuple[int, int]:
        """Return the next span ``[first, last)``.  A block above ``alone_bytes``, as stored, is a span of its own."""
        first, offsets = self._next, self.meta.index.offsets
        last = span_end(offsets, first, self._last, size_bytes)
        if alone_bytes is not None and len(large := _blocks_above(offsets, first, last, alone_bytes)):
            last = max(int(large[0]), first + 1)
        self._next = last
        return first, last


class ReverseBlockCursor(BlockCursor):
    """A position that moves from the last block to the first."""

    __slots__ = ()

    @property
    def next_block_bytes(self) -> int:
        """The stored size of the block before the last step; 0 at the end."""
        offsets = self.meta.index.offsets
        return int(offsets[self._last] - offsets[self._last - 1]) if self._last > 0 else 0

    def advance(self, size_bytes: int, alone_bytes: int | None = None) -> tuple[int, int]:
        """Return the span ``[first, last)`` before the last one; ``alone_bytes`` as forward."""
        last, offsets = self._last, self.meta.index.offsets
        first = span_begin(offsets, self._next, last, size_bytes)
        if alone_bytes is not None and len(large := _blocks_above(offsets, first, last, alone_bytes)):
            first = min(int(large[-1]) + 1, last - 1)
        self._last = first
        return first, last

    def go_back(self, first: int) -> None:
        """Refuse: a merge of stored blocks, which alone takes steps back, reads forward."""
        raise AssertionError(f"block {first}: a backward position takes no step back")


def _blocks_above(offsets: I64, first: int, last: int, size_bytes: int) -> I64:
    """Return which of the blocks ``[first, last)`` are larger, as stored."""
    if int(offsets[last] - offsets[first]) <= size_bytes:
        return _NONE
    return (np.diff(offsets[first : last + 1]) > size_bytes).nonzero()[0] + first
