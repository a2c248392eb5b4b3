"""Rows in columns to the data blocks of an SST, as a stream (docs/format.md 7, 8, 10, 11).

Rows fill blocks up to the target size.  A block that has ended is final and can be uploaded; the last one stays open
until ``finish``.  Beside the blocks the writer keeps what index and stats need.
"""

from dataclasses import dataclass, field

import numpy as np

from shale.errors import CorruptionError
from shale.format.block_plain import RESTART_INTERVAL, encode_block_plain, row_size, shared_len
from shale.format.buffer import Buffer
from shale.format.index import BlockIndex
from shale.format.section import seal_section
from shale.kernels.choice import use_kernels
from shale.kernels.rows import I64, U8, Rows, entries_from_rows, rows_from_entries
from shale.types import Compression, Entry

NO_LIMIT = 2**62
_UNSORTED = "rows out of order: an SST that they come from is not sorted"
"""Checksums do not notice that, and merging cannot: whoever wrote such an SST was wrong."""
_ROW_COST_BYTES = 128
"""In plain Python the number of rows counts, not their size; a row costs as much as so many bytes elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockOptions:
    """``target_bytes``: size of a block's image; a larger row makes a block of its own.

    ``by_seq``: the blocks of a WAL file: rows in any order, index keys are sequence numbers.
    """

    target_bytes: int
    compression: Compression = Compression.NONE
    by_seq: bool = False


@dataclass(slots=True)
class WrittenBlocks:
    """Blocks so far: index keys of all that began, bytes, ends and row counts of all that ended."""

    data_len: int = 0
    parts: list[Buffer] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    key_lengths: list[I64] = field(default_factory=list)
    ends: list[I64] = field(default_factory=list)
    counts: list[I64] = field(default_factory=list)

    def index(self) -> BlockIndex:
        """The index, once every block has ended."""
        start = [np.zeros(1, np.int64)]
        return BlockIndex(
            offsets=np.concatenate(start + self.ends),
            key_bytes=np.frombuffer(b"".join(self.keys), np.uint8),
            key_offsets=np.cumsum(np.concatenate(start + self.key_lengths)),
        )

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

    def take_parts(self) -> list[Buffer]:
        """The bytes of blocks that ended since the last call; they follow each other in the file."""
        self._blocks.release()
        parts, self.written.parts = self.written.parts, []
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
                raise CorruptionError(_UNSORTED)
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
        self._written.keys.append(key)
        self._written.key_lengths.append(np.array([len(key)], np.int64))

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
        stored = seal_section(encode_block_plain(block), self._options.compression)
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
        kernel = KernelBlocks(self._options, self._written, self._previous)
        if self._block:
            self._written.keys.pop()
            self._written.key_lengths.pop()
            kernel.add(rows_from_entries(self._block), NO_LIMIT)
        return kernel


class KernelBlocks:
    """Many blocks per call.  Without compression the blocks stay where the kernel writes them."""

    PART_BYTES = 1 << 20

    def __init__(self, options: BlockOptions, written: WrittenBlocks, previous: bytes | None) -> None:
        from shale.kernels import block_encode
        from shale.kernels.columns import address_of, column_addresses, empty_bytes

        self._kernel = block_encode
        self._address_of = address_of
        self._column_addresses = column_addresses
        self._empty_bytes = empty_bytes
        self._options = options
        self._written = written
        self._in_place = options.compression is Compression.NONE
        self._previous = None if previous is None else np.frombuffer(previous, np.uint8)
        self._state = np.zeros(block_encode.STATE_WORDS, np.int64)
        self._restarts = np.empty(block_encode.restarts_max(options.target_bytes), np.int64)
        self._out = empty_bytes(self.PART_BYTES)
        self._released = 0
        """Bytes of ``_out`` that are parts, or compressed, already."""

    def add(self, rows: Rows, until_bytes: int) -> int:
        """See ``BlockWriter``."""
        kernel, state = self._kernel, self._state
        n_rows = len(rows)
        key_bytes = int(rows.key_offsets[-1] - rows.key_offsets[0])
        separators = self._empty_bytes(8 * n_rows if self._options.by_seq else key_bytes)
        separator_ends = np.empty(n_rows, np.int64)
        table = np.empty((n_rows + 1, kernel.BLOCK_WORDS), np.int64)
        columns = self._column_addresses(rows)
        for word in (kernel.ROW, kernel.BLOCKS, kernel.ENDED, kernel.SEPARATORS_AT):
            state[word] = 0
        while True:
            file_offset = self._written.data_len - self._released
            state[kernel.LIMIT] = until_bytes - file_offset
            status = kernel.encode_blocks(
                columns,
                n_rows,
                state,
                0 if self._previous is None else self._address_of(self._previous),
                -1 if self._previous is None else len(self._previous),
                self._address_of(self._out),
                len(self._out),
                self._address_of(self._restarts),
                self._options.target_bytes,
                int(self._in_place),
                self._address_of(separators),
                self._address_of(separator_ends),
                self._address_of(table),
                kernel.BY_SEQ if self._options.by_seq else kernel.BY_KEY,
            )
            self._harvest(table)
            if status == kernel.OUT_OF_ORDER:
                raise CorruptionError(_UNSORTED)
            if status == kernel.NEED_ROOM:
                self._turn(int(state[kernel.NEED]))
            elif status == kernel.DONE or self._written.data_len > until_bytes:
                break
        self._note_keys(separators, separator_ends[: state[kernel.BLOCKS]])
        taken = int(state[kernel.ROW])
        if taken:
            self._previous = rows.key_bytes[rows.key_offsets[taken - 1] : rows.key_offsets[taken]].copy()
        return taken

    def _harvest(self, table: I64) -> None:
        """Note the blocks that the last call has ended."""
        kernel, state, written = self._kernel, self._state, self._written
        ended = table[: state[kernel.ENDED]]
        state[kernel.ENDED] = 0
        if not len(ended):
            return
        written.counts.append(ended[:, kernel.BLOCK_PUTS :].copy())
        if self._in_place:
            written.ends.append(ended[:, kernel.BLOCK_END] + (written.data_len - self._released))
            self.release()
            return
        ends = []
        for end in ended[:, kernel.BLOCK_END].tolist():
            stored = seal_section(self._out.data[self._released : end], self._options.compression)
            written.parts.append(stored)
            written.data_len += len(stored)
            ends.append(written.data_len)
            self._released = end
        written.ends.append(np.array(ends, np.int64))

    def release(self) -> None:
        """Hand out the ended blocks."""
        end = int(self._state[self._kernel.BLOCK_START])
        if self._in_place and end > self._released:
            self._written.parts.append(self._out.data[self._released : end])
            self._written.data_len += end - self._released
            self._released = end

    def _turn(self, need: int) -> None:
        """Go on in a new output, taking the open block along."""
        kernel, state = self._kernel, self._state
        start, end = int(state[kernel.BLOCK_START]), int(state[kernel.AT])
        fresh = self._empty_bytes(max(self.PART_BYTES, 2 * need))
        fresh[: end - start] = self._out[start:end]
        self._out = fresh
        self._released = 0
        state[kernel.AT] = end - start
        state[kernel.BLOCK_START] = 0

    def _note_keys(self, separators: U8, ends: I64) -> None:
        if len(ends):
            self._written.keys.append(separators[: ends[-1]].tobytes())
            self._written.key_lengths.append(np.diff(ends, prepend=0))

    def finish(self) -> None:
        """End the open block."""
        if not self._state[self._kernel.BLOCK_ROWS]:
            return
        table = np.empty((1, self._kernel.BLOCK_WORDS), np.int64)
        self._kernel.end_block(
            self._state,
            self._address_of(self._out),
            self._address_of(self._restarts),
            self._address_of(table),
            int(self._in_place),
        )
        self._harvest(table)
