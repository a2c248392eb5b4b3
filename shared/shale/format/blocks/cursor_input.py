"""Stored blocks as the input of a cursor of the kernels (``shale.kernels.layout.cursor``)."""

import numpy as np

from shale.errors import CorruptionError
from shale.format.blocks.decoder import StoredBlocks
from shale.kernels.columns import SLACK, address_of
from shale.kernels.layout import cursor as cursors
from shale.kernels.layout.decoder import MESSAGES
from shale.kernels.rows import I64, U8

_UNSORTED = "rows out of order: the SST is not sorted"


class BlockInput:
    """The blocks that a cursor reads.  Keeps every buffer alive whose address the cursor holds."""

    def __init__(self, blocks: StoredBlocks, words: I64, longest: int) -> None:
        self._blocks = blocks
        self._words = words
        self._keys: U8 = np.zeros((2, longest + SLACK), np.uint8)
        words[:] = 0
        words[cursors.DATA] = address_of(blocks.image)
        words[cursors.DATA_END] = address_of(blocks.image) + len(blocks.image)
        words[cursors.BOUNDS] = address_of(blocks.bounds)
        words[cursors.BLOCKS] = len(blocks.bounds) - 1
        words[cursors.BLOCK] = -1
        words[cursors.VERSION] = blocks.version
        words[cursors.HAS_CHECKSUMS] = blocks.has_checksums
        words[cursors.KEY] = address_of(self._keys[0])
        words[cursors.BASE_KEY] = address_of(self._keys[0 if blocks.version == 2 else 1])
        if blocks.visible.end_key is not None:
            ends = np.frombuffer(blocks.visible.end_key[:16].ljust(16, b"\0"), ">u8")
            words.view(np.uint64)[[cursors.END_HIGH, cursors.END_LOW]] = ends
        self._edges = [
            self._set_edge(key, *where)
            for key, where in (
                (blocks.visible.first_key, (cursors.START, cursors.START_LEN)),
                (blocks.visible.end_key, (cursors.END, cursors.END_LEN)),
            )
            if key is not None
        ]

    def _set_edge(self, key: bytes, address: int, length: int) -> U8:
        edge: U8 = np.frombuffer(key + bytes(1), np.uint8)
        self._words[address] = address_of(edge)
        self._words[length] = len(key)
        return edge

    def corrupt(self, status: int) -> CorruptionError:
        """Return the error for the ``status`` that the cursor ended with, at the row it read last."""
        blocks, words = self._blocks, self._words
        block = int(words[cursors.BLOCK])
        place = int(blocks.places[block])
        if status == cursors.OUT_OF_ORDER:
            return CorruptionError(_UNSORTED, path=blocks.path, offset=place)
        if blocks.has_checksums:
            place += int(words[cursors.ROW_AT] - words[cursors.DATA] - blocks.bounds[block] + blocks.bounds[0])
        return CorruptionError(MESSAGES[status], path=blocks.path, offset=place)
