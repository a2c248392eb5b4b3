"""Drives the kernel that merges stored blocks into visible rows, without waiting."""

from typing import Final, TypeAlias

import numpy as np

from shale.errors import CorruptionError
from shale.format.blocks.cursor_input import BlockInput
from shale.format.blocks.cursor_order import CursorOrder
from shale.format.blocks.decoder import StoredBlocks
from shale.iter.merge_filter_kernel import CAPACITY_FIRST, OutputCapacity
from shale.kernels.columns import SLACK, ColumnBuffers, address_of, column_addresses
from shale.kernels.dispatch import compiled
from shale.kernels.layout import cursor as cursors
from shale.kernels.layout import merge_visible as kernel
from shale.kernels.merge_status import MergeStatus
from shale.kernels.rows import I64, U8, Rows
from shale.types import U64_MAX

Chunk: TypeAlias = StoredBlocks | Rows
_CAPACITY_MAX: Final = OutputCapacity(32 << 10, 4 << 20, 8 << 20)
"""Large enough that the C library keeps freed buffers for the next scan: after it has unmapped 8 MiB once, it trims its
heap only from 16 MiB on.  Fresh pages would cost a fifth of the merge."""
_CAPACITY_FULL_READ: Final = OutputCapacity(64 << 10, 4 << 20, 8 << 20)
"""For a caller that takes all rows and does not wait for the first."""
_CAPACITY_FULL_READ_FIRST: Final = OutputCapacity(64 << 10, 2 << 20, 8 << 20)
"""numpy asks for huge pages from 4 MiB on: of keys that take less most of them would be wasted."""
_SPARE_BYTES = 4096


class VisibleKernel:
    """The state of one merge of ``source_count`` sources, in order of precedence.

    Args:
        source_count: number of sources.
        max_seq: rows above it are invisible; ``None``: all are visible.
        now_tick: see ``VisibleSource``.
        reads_all: begin with a large output.
    """

    def __init__(
        self, source_count: int, max_seq: int | None, now_tick: int | None = None, *, reads_all: bool = False
    ) -> None:
        self._cursors = np.zeros((max(source_count, 1), cursors.CURSOR_WORDS), np.int64)
        self._order = np.zeros(max(source_count, 1), np.int64)
        self._state = np.zeros(kernel.STATE_WORDS, np.int64)
        self._state.view(np.uint64)[kernel.MAX_SEQ] = U64_MAX if max_seq is None else max_seq
        self._state[kernel.HAS_NOW] = now_tick is not None
        self._state[kernel.NOW] = now_tick or 0
        self._addresses = address_of(self._cursors), address_of(self._order), address_of(self._state)
        self._cursor_order = CursorOrder(self._addresses[0], self._order, self._state)
        self._inputs: list[BlockInput | _ColumnInput | None] = [None] * source_count
        self._met: U8 = np.zeros(0, np.uint8)
        self._source_needing_input: int | None = None
        self._reads_all = reads_all
        self._capacity = self._capacity_next = _CAPACITY_FULL_READ_FIRST if reads_all else CAPACITY_FIRST
        self._capacity_max = _CAPACITY_FULL_READ if reads_all else _CAPACITY_MAX
        self._out: ColumnBuffers | None = None

    @property
    def source_needing_input(self) -> int | None:
        """The source that used up its chunk, until it is fed."""
        return self._source_needing_input

    @property
    def capacity(self) -> OutputCapacity:
        """The capacity of the current chunk of output, or of the next one."""
        return self._capacity_next if self._out is None else self._capacity

    @property
    def rows(self) -> int:
        """Rows of the current output; later input cannot change them."""
        return int(self._state[kernel.ROWS])

    def begin(self, source: int, chunk: Chunk, max_seq: int = U64_MAX) -> bool:
        """Add a source with its first chunk; return ``False`` if no row of it is in range, so it needs another.

        Args:
            source: number of the source.
            chunk: its rows.
            max_seq: rows above it are invisible.

        Raises:
            CorruptionError: the blocks are malformed.
        """
        if not self._load(source, chunk, max_seq):
            return False
        self._cursor_order.add(source)
        return True

    def feed(self, chunk: Chunk | None, max_seq: int = U64_MAX) -> bool:
        """Give the source that needs input its next chunk, or its end; ``False``: no row of it is in range.

        Raises:
            CorruptionError: the blocks are malformed.
        """
        source = self._source_needing_input
        assert source is not None, "no source needs input"
        if chunk is None:
            self._cursor_order.remove_first()
            self._inputs[source] = None
        elif self._load(source, chunk, max_seq):
            self._cursor_order.sort_first()
        else:
            return False
        self._source_needing_input = None
        return True

    def run(self) -> MergeStatus:
        """Merge until a source needs input, the output is full, or all input is merged.

        Raises:
            CorruptionError: a source is malformed; with its place.
        """
        assert self._source_needing_input is None, "a source needs input first"
        if self._out is None:
            self._capacity = self._capacity_next
            self._out = ColumnBuffers(self._capacity.rows, self._capacity.key_bytes, self._capacity.value_bytes)
        capacity = self._capacity
        status = int(
            compiled.merge_visible(
                *self._addresses,
                address_of(self._out.addresses),
                capacity.rows,
                capacity.key_bytes,
                capacity.value_bytes,
            )
        )
        if status > kernel.BAD_BLOCK:
            raise self._corrupt(int(self._state[kernel.SOURCE]), status - kernel.BAD_BLOCK)
        if status == kernel.NEED_INPUT:
            self._source_needing_input = int(self._state[kernel.SOURCE])
        return MergeStatus(status)

    def take(self) -> Rows:
        """Return the rows of the output and start a new one.

        Without rows the output was too small for one row; the next output is larger.
        """
        assert self._out is not None, "rows are taken after a run"
        rows = self._out.rows(0, self.rows)
        if not len(rows):
            self._capacity_next = self._capacity.times(2)
        elif self._reads_all:
            self._capacity_next = _fitting(rows)
        elif self._capacity.exceeds(self._capacity_max):
            self._capacity_next = self._capacity_max
        else:
            self._capacity_next = self._capacity.grown(self._capacity_max)
        self._out = None
        for word in (kernel.ROWS, kernel.KEYS_AT, kernel.VALUES_AT):
            self._state[word] = 0
        return rows

    def _load(self, source: int, chunk: Chunk, max_seq: int) -> bool:
        words = self._cursors[source]
        if isinstance(chunk, Rows):
            self._inputs[source] = _ColumnInput(chunk, words)
            self._reserve_key(int((chunk.key_offsets[1:] - chunk.key_offsets[:-1]).max(initial=0)))
        else:
            longest = chunk.longest
            self._inputs[source] = BlockInput(chunk, words, longest)
            self._reserve_key(longest)
        words.view(np.uint64)[kernel.MAX_SEQ_HERE] = max_seq
        status = int(compiled.first_visible_row(self._addresses[0] + source * cursors.CURSOR_BYTES))
        if status not in (cursors.ROW, cursors.USED_UP):
            raise self._corrupt(source, status)
        return status == cursors.ROW

    def _reserve_key(self, size: int) -> None:
        """Make the buffer of the current key large enough."""
        if size + SLACK <= len(self._met):
            return
        met = np.zeros(2 * size + 64, np.uint8)
        end = int(self._state[kernel.MET_LEN])
        met[: min(end, len(self._met))] = self._met[:end]
        self._met = met
        self._state[kernel.MET] = address_of(met)

    def _corrupt(self, source: int, status: int) -> CorruptionError:
        fed = self._inputs[source]
        assert isinstance(fed, BlockInput), "only blocks can be malformed"
        return fed.corrupt(status)


def _fitting(rows: Rows) -> OutputCapacity:
    """Return a capacity of which the next rows use most bytes: a caller may keep the buffers."""
    most, count = _CAPACITY_FULL_READ, len(rows)
    key_bytes = int(rows.key_offsets[count] - rows.key_offsets[0]) * most.rows // count
    value_bytes = int(rows.val_offsets[count] - rows.val_offsets[0]) * most.rows // count
    return OutputCapacity(
        most.rows,
        min(most.key_bytes, key_bytes + key_bytes // 32 + _SPARE_BYTES),
        min(most.value_bytes, value_bytes + value_bytes // 32 + _SPARE_BYTES),
    )


class _ColumnInput:
    """The columns that a cursor reads; this object keeps them alive."""

    def __init__(self, rows: Rows, words: I64) -> None:
        self._rows = rows
        self._addresses = column_addresses(rows)
        words[:] = 0
        words[cursors.VERSION] = kernel.COLUMNS_VERSION
        words[cursors.DATA] = address_of(self._addresses)
        words[cursors.DATA_END] = address_of(rows.val_bytes) + int(rows.val_offsets[-1])
        words[cursors.ROWS_END] = len(rows)
