"""Rows in columns to the data blocks of an SST, as a stream (docs/format.md 7, 8, 10, 11).

Rows fill blocks up to the target size.  A block that has ended is final and can be uploaded; the last one stays open
until ``finish``.  Beside the blocks the writer keeps what index and stats need.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from shale.errors import CorruptionError
from shale.format.block_plain import RESTART_INTERVAL, encode_block_plain, row_size, shared_len
from shale.format.buffer import Buffer
from shale.format.index import BlockIndex
from shale.format.section import seal_section
from shale.format.transform import BlockTransformer
from shale.kernels.choice import use_kernels
from shale.kernels.merge_steps import Step
from shale.kernels.rows import I64, U64, Rows, entries_from_rows, rows_from_entries
from shale.types import Compression, Entry

if TYPE_CHECKING:
    from shale.format.block_merge import BlockMerge
    from shale.format.block_writer_kernel import KernelBlocks

NO_LIMIT = 2**62
UNSORTED = "rows out of order: an SST that they come from is not sorted"
"""Checksums do not notice that, and merging cannot: whoever wrote such an SST was wrong."""
PART_BYTES = 1 << 20
"""Output is handed out in parts of this size."""
MERGED_PART_BYTES = 4 << 20
"""Merges make larger ones: fewer requests and fewer hops between threads.  They rest when one is full, which is after
some milliseconds."""
_PART_BYTES_MIN = 64 << 10
"""Smaller ones, as compressed blocks are, are joined: each part costs a write and a hop between threads."""
_ROW_COST_BYTES = 128
"""In plain Python the number of rows counts, not their size; a row costs as much as so many bytes elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockOptions:
    """``target_bytes``: size of a block's image; a larger row makes a block of its own.

    ``by_seq``: the blocks of a WAL file: rows in any order, index keys are sequence numbers.
    ``merged_part_bytes``: size of the parts that a merge hands out; also the most of those made of rows, which are
    as large as what is added at once, but not below ``PART_BYTES``.
    ``transformer``: applied to what is compressed.
    """

    target_bytes: int
    compression: Compression = Compression.NONE
    by_seq: bool = False
    merged_part_bytes: int = MERGED_PART_BYTES
    transformer: BlockTransformer | None = None


@dataclass(slots=True)
class WrittenBlocks:
    """Blocks so far: index keys of all that began, bytes, ends and row counts of all that ended."""

    data_len: int = 0
    parts: list[Buffer] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    keys_len: int = 0
    key_ends: list[I64] = field(default_factory=list)
    ends: list[I64] = field(default_factory=list)
    counts: list[I64] = field(default_factory=list)

    def index(self) -> BlockIndex:
        """The index, once every block has ended."""
        start = [np.zeros(1, np.int64)]
        return BlockIndex(
            offsets=np.concatenate(start + self.ends),
            key_bytes=np.frombuffer(b"".join(self.keys), np.uint8),
            key_offsets=np.concatenate(start + self.key_ends),
        )

    def add_keys(self, keys: bytes, ends: I64) -> None:
        """Note index keys that lie behind each other, and where each one ends."""
        self.keys.append(keys)
        self.key_ends.append(ends + self.keys_len)
        self.keys_len += len(keys)

    def drop_key(self) -> None:
        """Forget the key noted last, which came alone: its block begins anew."""
        self.keys_len -= len(self.keys.pop())
        self.key_ends.pop()

    def block_counts(self) -> I64:
        """Values, tombstones and operands of every ended block, shape (n, 3)."""
        return np.concatenate([np.zeros((0, 3), np.int64), *self.counts])


class BlockWriter:
    """Writes blocks of version 2."""

    def __init__(self, options: BlockOptions) -> None:
        self.written = WrittenBlocks()
        self._options = options
        self._blocks: PlainBlocks | KernelBlocks = PlainBlocks(options, self.written)
        self._row_count = 0

    def add(self, rows: Rows, until_bytes: int = NO_LIMIT) -> int:
        """Append rows and return how many were taken.

        Args:
            rows: in order, unless the options say ``by_seq``.
            until_bytes: stop once ended blocks take more, though never between two versions of a key.
        """
        if isinstance(self._blocks, PlainBlocks) and use_kernels(_ROW_COST_BYTES * (self._row_count + len(rows))):
            self._blocks = self._blocks.into_kernel()
        taken = self._blocks.add(rows, until_bytes)
        self._row_count += taken
        return taken

    def merge(self, merge: "BlockMerge", until_bytes: int, add_hashes: Callable[[U64], None] | None) -> Step:
        """Append rows of a merge, with kernels.

        Args:
            merge: where rows come from.
            until_bytes: as in ``add``.
            add_hashes: takes the hashes of the rows' keys; ``None``: nobody wants them.

        Returns:
            why it stopped: ``STARVED``, ``DONE``, ``FULL``, or ``NEED_ROOM`` for a rest after some megabytes.
        """
        if isinstance(self._blocks, PlainBlocks):
            self._blocks = self._blocks.into_kernel()
        return self._blocks.merge(merge, until_bytes, add_hashes)

    def take_parts(self) -> list[Buffer]:
        """The bytes of blocks that ended since the last call; they follow each other in the file."""
        self._blocks.release()
        parts, self.written.parts = self.written.parts, []
        if sum(map(len, parts)) < _PART_BYTES_MIN * len(parts):
            return [b"".join(parts)]
        return parts

    def finish(self) -> None:
        """End the open block; then ``written`` is complete."""
        self._blocks.finish()


class PlainBlocks:
    """Block by block in plain Python."""

    def __init__(self, options: BlockOptions, written: WrittenBlocks) -> None:
        self._options = options
        self._written = written
        self._block: list[Entry] = []
        self._size = 0
        self._previous: bytes | None = None
        """The last key of the last ended block."""

    def add(self, rows: Rows, until_bytes: int) -> int:
        """See ``BlockWriter``."""
        for taken, entry in enumerate(entries_from_rows(rows)):
            last = self._block[-1].key if self._block else self._previous
            if not self._options.by_seq and last is not None and last > entry.key:
                raise CorruptionError(UNSORTED)
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
        """Ended blocks are parts already."""

    def into_kernel(self) -> "KernelBlocks":
        """Hand over, the rows of the open block included: they begin their block anew."""
        from shale.format.block_writer_kernel import KernelBlocks

        kernel = KernelBlocks(self._options, self._written, self._previous)
        if self._block:
            self._written.drop_key()
            kernel.add(rows_from_entries(self._block), NO_LIMIT)
        return kernel
