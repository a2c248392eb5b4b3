"""Lookups of many keys that read what they miss in the order of levels, SSTs and blocks, each part once.

The kernel looks for all keys and says where each search stopped.  The parts there are read into the cache without
waiting, neighbours with one read, and the kernel goes on with the keys that stopped there.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from shale.engine.read.tree_lookup import TreeLookup
from shale.kernels.layout import point_lookup as layout
from shale.kernels.rows import I64
from shale.sst.reader import SstReader
from shale.sst.slot import META

_BYTES_IN_TURN = 1 << 20
"""Stored bytes of blocks that one turn reads: about a millisecond."""
_BLOCK_MASK = (1 << layout.PLACE_BLOCK_BITS) - 1
_VIEW_MASK = (1 << layout.PLACE_VIEW_BITS) - 1


class BatchLookup:
    """The search for many keys in one tree; the process must have kernels.

    ``values`` has what ``TreeLookup.find_values`` answers for each key: a status as long as it is not decided.
    """

    def __init__(self, tree: TreeLookup, reader: SstReader, keys: Sequence[bytes], max_seq: int) -> None:
        """Look into memory; arguments as for ``TreeLookup.find_values``."""
        self.values: list[bytes | int | None] = [layout.NEED_BLOCK] * len(keys)
        self._tree = tree
        self._reader = reader
        self._keys = keys
        self._max_seq = max_seq
        self._pending: I64 = np.arange(len(keys))
        """The keys to go on with, ascending by ``_places``."""
        self._places: I64 = np.full(len(keys), -1, np.int64)
        """Where their searches stopped."""
        self._find(len(keys))

    @property
    def is_over(self) -> bool:
        """Whether every key is decided, or needs a part that cannot be read now."""
        return not len(self._pending)

    def read_on(self) -> None:
        """Read the first parts, up to a mebibyte of blocks, and look again for the keys that stopped there."""
        parts, firsts, counts = np.unique(self._places, return_index=True, return_counts=True)
        firsts = np.append(firsts, len(self._places))
        read_once: list[tuple[int, int, I64]] = []
        left_bytes, done, is_refused = _BYTES_IN_TURN, 0, False
        for first, last in _groups(parts >> layout.PLACE_BLOCK_BITS):
            sst = int(parts[first]) >> layout.PLACE_BLOCK_BITS
            level, view = sst >> layout.PLACE_VIEW_BITS, sst & _VIEW_MASK
            blocks = (parts[first:last] & _BLOCK_MASK) - 1
            if blocks[0] == META:
                is_refused = not self._tree.load_meta_now(self._reader, level, view)
                done += not is_refused
            else:
                count, size, is_refused = self._tree.load_blocks_now(self._reader, level, view, blocks, left_bytes)
                read_once.append((level, view, blocks[:count][counts[first : first + count] == 1]))
                left_bytes, done = left_bytes - size, done + count
            if is_refused or left_bytes <= 0 or done < last:
                break
        end = int(firsts[done])
        refused = int(firsts[done + 1]) - end if is_refused else 0
        self._pending = np.delete(self._pending, slice(end, end + refused))
        self._places = np.delete(self._places, slice(end, end + refused))
        self._find(end)
        for level, view, blocks in read_once:
            self._tree.unmark(level, view, blocks)

    def _find(self, count: int) -> None:
        """Look for the first pending keys; those that stop again follow, unless they did not get on."""
        places, before = np.full(count, -1, np.int64), self._places[:count]
        searched, keys, values = self._pending[:count].tolist(), self._keys, self.values
        found, _ = self._tree.find_values([keys[number] for number in searched], self._max_seq, places)
        for number, value in zip(searched, found, strict=True):
            values[number] = value
        goes_on = places > before
        pending = np.concatenate([self._pending[:count][goes_on], self._pending[count:]])
        places = np.concatenate([places[goes_on], self._places[count:]])
        order = places.argsort(kind="stable")
        self._pending, self._places = pending[order], places[order]


def _groups(numbers: I64) -> Iterator[tuple[int, int]]:
    """Yield the ranges ``[first, last)`` of equal numbers."""
    bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
    yield from pairwise(bounds)
