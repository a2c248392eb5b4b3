"""Blocks of version 2 with kernels, many per call, for ``BlockWriter``."""

from collections.abc import Callable

import numpy as np

from shale.errors import CorruptionError
from shale.format.blocks.merge import BlockMerge
from shale.format.blocks.output import PART_BYTES, UNSORTED, BlockOptions, WrittenBlocks
from shale.format.blocks.section import seal_section
from shale.kernels.columns import address_of, column_addresses, empty_bytes, empty_bytes_at
from shale.kernels.dispatch import compiled
from shale.kernels.layout import encoder as kernel
from shale.kernels.layout import merge_blocks as merging
from shale.kernels.merge_status import MergeStatus
from shale.kernels.rows import I64, U8, U64, Rows
from shale.types import Compression

_BLOCKS_MAX = 1024
_HASHES_MAX = 32 << 10
_SEPARATORS_MAX = 64 << 10


class BlockMetadata:
    """Buffers for the metadata that a call of the merging kernel writes, and the words with their addresses."""

    def __init__(self, restarts: I64, target: int, *, has_checksums: bool) -> None:
        self.ends: I64 = np.empty(_BLOCKS_MAX, np.int64)
        self.table: I64 = np.empty((_BLOCKS_MAX + 1, kernel.BLOCK_WORDS), np.int64)
        self.hashes: U64 = np.empty(_HASHES_MAX, np.uint64)
        self.separators: U8 = np.empty(0, np.uint8)
        self.sink: I64 = np.zeros(merging.SINK_WORDS, np.int64)
        self.sink[merging.RESTARTS] = address_of(restarts)
        self.sink[merging.TARGET] = target
        self.sink[merging.HAS_CHECKSUMS] = has_checksums
        self.sink[merging.SEPARATOR_ENDS] = address_of(self.ends)
        self.sink[merging.TABLE] = address_of(self.table)
        self.sink[merging.BLOCKS_MAX] = _BLOCKS_MAX
        self.sink[merging.HASHES_MAX] = _HASHES_MAX
        self.reserve(_SEPARATORS_MAX)

    def reserve(self, key_len: int) -> None:
        """Enlarge the buffer of index keys to hold one of this length."""
        if key_len > len(self.separators):
            self.separators = empty_bytes(key_len)
            self.sink[merging.SEPARATORS] = address_of(self.separators)
            self.sink[merging.SEPARATORS_MAX] = key_len


class KernelBlockWriter:
    """Many blocks per call.  Without compression and transformer, blocks stay where the kernel writes them."""

    def __init__(self, options: BlockOptions, written: WrittenBlocks) -> None:
        self._options = options
        self._written = written
        self._in_place = options.compression is Compression.NONE and options.transformer is None
        self._previous: U8 | None = None
        self._state = np.zeros(kernel.STATE_WORDS, np.int64)
        self._state_address = address_of(self._state)
        self._restarts = np.empty(kernel.restarts_max(options.target_bytes), np.int64)
        self._out = empty_bytes_at(PART_BYTES, written.data_len)
        self._counted = 0
        """Bytes of ``_out`` that ``written`` counts, compressed or not."""
        self._released = 0
        """Bytes of ``_out`` that were returned as parts."""
        self._metadata: BlockMetadata | None = None

    def add(self, rows: Rows, until_bytes: int) -> int:
        """See ``BlockWriter``."""
        self._take_metadata()
        state = self._state
        n_rows = len(rows)
        key_bytes = int(rows.key_offsets[-1] - rows.key_offsets[0])
        separators = empty_bytes(8 * n_rows if self._options.by_seq else key_bytes)
        separator_ends = np.empty(n_rows, np.int64)
        table = np.empty((n_rows + 1, kernel.BLOCK_WORDS), np.int64)
        columns = column_addresses(rows)
        # Large parts can be written to a file in place; small chunks come from callers with little memory.
        part_bytes = max(PART_BYTES, min(rows.size_bytes, self._options.merged_part_bytes))
        state[kernel.ROW] = 0
        while True:
            state[kernel.LIMIT] = until_bytes - (self._written.data_len - self._counted)
            status = compiled.encode_blocks(
                address_of(columns),
                n_rows,
                self._state_address,
                0 if self._previous is None else address_of(self._previous),
                -1 if self._previous is None else len(self._previous),
                address_of(self._out),
                len(self._out),
                address_of(self._restarts),
                self._options.target_bytes,
                int(self._in_place),
                address_of(separators),
                address_of(separator_ends),
                address_of(table),
                kernel.BY_SEQ if self._options.by_seq else kernel.BY_KEY,
            )
            self._take_ended_blocks(table)
            if status == kernel.OUT_OF_ORDER:
                raise CorruptionError(UNSORTED)
            if status == kernel.NEED_OUTPUT_SPACE:
                self._switch_buffer(int(state[kernel.NEED]), part_bytes)
            elif status == kernel.DONE or self._written.data_len > until_bytes:
                break
        self._take_index_keys(separators, separator_ends)
        taken = int(state[kernel.ROW])
        if taken:
            self._previous = rows.key_bytes[rows.key_offsets[taken - 1] : rows.key_offsets[taken]].copy()
        return taken

    def merge(self, merge: BlockMerge, until_bytes: int, add_hashes: Callable[[U64], None] | None) -> MergeStatus:
        """See ``BlockWriter``."""
        if self._metadata is None:
            self._metadata = BlockMetadata(self._restarts, self._options.target_bytes, has_checksums=self._in_place)
        state, metadata = self._state, self._metadata
        while True:
            state[kernel.LIMIT] = until_bytes - (self._written.data_len - self._counted)
            metadata.sink[merging.OUT] = address_of(self._out)
            metadata.sink[merging.OUT_MAX] = len(self._out)
            metadata.sink[merging.HASHES] = address_of(metadata.hashes) if add_hashes is not None else 0
            step = merge.run(self._state_address, address_of(metadata.sink))
            if add_hashes is not None:
                add_hashes(metadata.hashes[: merge.hashed])
            if step is MergeStatus.NEED_INPUT:
                return step  # frequent: the next call appends to the same metadata
            self._take_metadata()
            if step is MergeStatus.NEED_OUTPUT_SPACE:
                if state[kernel.AT] - state[kernel.BLOCK_START] > self._options.target_bytes:
                    # A large value: the next row would end its block, which would be copied before.
                    self._end_block()
                    continue  # to learn what the row needs without it
                self._switch_buffer(int(state[kernel.NEED]), self._options.merged_part_bytes)
            elif step is MergeStatus.NEED_METADATA_SPACE:
                metadata.reserve(merge.longest)
                continue
            elif step is MergeStatus.FULL and self._written.data_len <= until_bytes:
                continue  # compressed, the blocks take less than the kernel assumed
            return step

    def _take_metadata(self) -> None:
        """Take over the metadata that calls of the merging kernel wrote, and reset its buffers."""
        metadata = self._metadata
        if metadata is None:
            return
        self._take_ended_blocks(metadata.table)
        self._take_index_keys(metadata.separators, metadata.ends)

    def _take_ended_blocks(self, table: I64) -> None:
        """Take over the blocks that the last call has ended."""
        state, written = self._state, self._written
        ended = table[: state[kernel.ENDED]]
        state[kernel.ENDED] = 0
        if not len(ended):
            return
        written.counts.append(ended[:, kernel.BLOCK_PUTS :].copy())
        ends = ended[:, kernel.BLOCK_END]
        if self._in_place:
            written.ends.append(ends + (written.data_len - self._counted))
            written.data_len += int(ends[-1]) - self._counted
            self._counted = int(ends[-1])
            return
        stored_ends = []
        for end in ends.tolist():
            image = self._out.data[self._counted : end]
            stored = seal_section(image, self._options.compression, self._options.transformer)
            written.parts.append(stored)
            written.data_len += len(stored)
            stored_ends.append(written.data_len)
            self._counted = end
        written.ends.append(np.array(stored_ends, np.int64))

    def release(self) -> None:
        """Add the ended blocks to the parts."""
        if self._in_place and self._counted > self._released:
            self._written.parts.append(self._out.data[self._released : self._counted])
            self._released = self._counted

    def _switch_buffer(self, need: int, size: int) -> None:
        """Continue in a new buffer of at least ``size`` bytes, to which the open block is copied."""
        self.release()
        state = self._state
        start, end = int(state[kernel.BLOCK_START]), int(state[kernel.AT])
        fresh = empty_bytes_at(max(size, need), self._written.data_len)
        fresh[: end - start] = self._out[start:end]
        self._out = fresh
        self._counted = 0
        self._released = 0
        state[kernel.AT] = end - start
        state[kernel.BLOCK_START] = 0

    def _take_index_keys(self, separators: U8, ends: I64) -> None:
        """Take over the index keys of the blocks that have begun since the last time."""
        state = self._state
        count, size = int(state[kernel.BLOCKS]), int(state[kernel.SEPARATORS_AT])
        if count:
            self._written.add_keys(separators[:size].tobytes(), ends[:count])
        state[kernel.BLOCKS] = 0
        state[kernel.SEPARATORS_AT] = 0

    def finish(self) -> None:
        """End the open block."""
        self._take_metadata()
        if self._state[kernel.BLOCK_ROWS]:
            self._end_block()

    def _end_block(self) -> None:
        """End the open block, which has rows; the metadata of those before it was taken over."""
        table = np.empty((1, kernel.BLOCK_WORDS), np.int64)
        compiled.end_block(
            self._state_address,
            address_of(self._out),
            address_of(self._restarts),
            address_of(table),
            int(self._in_place),
        )
        self._take_ended_blocks(table)
