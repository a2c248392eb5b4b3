"""Blocks of version 2 in plain Python, for files too small to load kernels for."""

import numpy as np

from shale.errors import CorruptionError
from shale.format.blocks.output import UNSORTED, BlockOptions, WrittenBlocks
from shale.format.blocks.plain import RESTART_INTERVAL, encode_block_plain, row_size, shared_len
from shale.format.blocks.section import seal_section
from shale.kernels.rows import Rows, entries_from_rows
from shale.types import Entry


class PlainBlockWriter:
    """Writes one block at a time in plain Python."""

    def __init__(self, options: BlockOptions, written: WrittenBlocks) -> None:
        self._options = options
        self._written = written
        self._block: list[Entry] = []
        self._size = 0
        self._previous: bytes | None = None
        """The last key of the last ended block; ``None`` before the first."""

    def add(self, rows: Rows, until_bytes: int) -> int:
        """See ``BlockWriter``."""
        before: Entry | None = None
        for taken, entry in enumerate(entries_from_rows(rows)):
            last = self._block[-1].key if self._block else self._previous
            if not self._options.by_seq and last is not None and last > entry.key:
                raise CorruptionError(UNSORTED)
            if not self._options.by_seq and before is not None and _is_newer_version(entry, before):
                raise CorruptionError(UNSORTED)
            before = entry
            if self._written.data_len > until_bytes and entry.key != last:
                return taken
            self._append(entry)
        return len(rows)

    def _append(self, entry: Entry) -> None:
        block = self._block
        if block:
            restart = len(block) % RESTART_INTERVAL == 0
            shared = 0 if restart else shared_len(block[-1].key, entry.key)
            grown = self._size + row_size(entry, shared) + 2 * restart
            if grown <= self._options.target_bytes:
                block.append(entry)
                self._size = grown
                return
            self.finish()
        self._block = [entry]
        self._size = 4 + row_size(entry, 0)
        key = self._index_key(entry)
        self._written.add_keys(key, np.array([len(key)], np.int64))

    def _index_key(self, entry: Entry) -> bytes:
        if self._options.by_seq:
            return entry.seq.to_bytes(8, "big")
        if self._previous is None:
            return b""
        return entry.key[: shared_len(self._previous, entry.key) + 1]

    def finish(self) -> None:
        """End the open block."""
        block, self._block = self._block, []
        if not block:
            return
        self._previous = block[-1].key
        stored = seal_section(encode_block_plain(block), self._options.compression, self._options.transformer)
        written = self._written
        written.parts.append(stored)
        written.data_len += len(stored)
        written.ends.append(np.array([written.data_len], np.int64))
        deletes = sum(entry.is_tombstone for entry in block)
        merges = sum(entry.is_merge for entry in block)
        written.counts.append(np.array([[len(block) - deletes - merges, deletes, merges]], np.int64))

    def release(self) -> None:
        """See ``KernelBlockWriter``; ended blocks are parts already."""


def _is_newer_version(entry: Entry, before: Entry) -> bool:
    return entry.key == before.key and entry.seq >= before.seq
