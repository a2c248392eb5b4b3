"""Drives the kernel that makes visible rows of stored blocks: feeds it and takes rows out.  No waiting happens here."""

from typing import Final, TypeAlias

import numpy as np

from shale.errors import CorruptionError
from shale.format.block import StoredBlocks
from shale.format.block_input import BlockInput
from shale.iter.fused_kernel import ROOM_FIRST, Room
from shale.kernels import block_cursor as cursors
from shale.kernels import merge_visible as kernel
from shale.kernels.columns import SLACK, ColumnBuffers, address_of, column_addresses
from shale.kernels.merge_blocks import insert
from shale.kernels.merge_steps import Step
from shale.kernels.rows import I64, U8, Rows
from shale.types import U64_MAX

Chunk: TypeAlias = StoredBlocks | Rows
_ROOM_MAX: Final = Room(32 << 10, 4 << 20, 8 << 20)
"""So large that the C library keeps what a scan has freed for the next one: once a mapping of 8 MiB was given back, it
gives back no less than 16 MiB of its heap at a time.  Fresh pages would cost as much as a fifth of the merge."""
_ROOM_WHOLE: Final = Room(64 << 10, 4 << 20, 8 << 20)
"""Where nobody waits for the first rows."""


class KernelVisible:
    """The state of one merge of ``source_count`` sources, in order of precedence.

    Args:
        source_count: how many.
        max_seq: rows above it are invisible; ``None``: all are visible.
        now_tick: see ``VisibleSource``.
        is_whole: the output is large from the beginning.
    """

    def __init__(
        self, source_count: int, max_seq: int | None, now_tick: int | None = None, *, is_whole: bool = False
    ) -> None:
        self._cursors = np.zeros((max(source_count, 1), cursors.CURSOR_WORDS), np.int64)
        self._order = np.zeros(max(source_count, 1), np.int64)
        self._state = np.zeros(kernel.STATE_WORDS, np.int64)
        self._state.view(np.uint64)[kernel.MAX_SEQ] = U64_MAX if max_seq is None else max_seq
        self._state[kernel.HAS_NOW] = now_tick is not None
        self._state[kernel.NOW] = now_tick or 0
        self._addresses = tuple(map(address_of, (self._cursors, self._order, self._state)))
        self._inputs: list[BlockInput | _ColumnInput | None] = [None] * source_count
        self._met: U8 = np.zeros(0, np.uint8)
        self._starved: int | None = None
        self._room = self._room_next = _ROOM_WHOLE if is_whole else ROOM_FIRST
        self._room_max = _ROOM_WHOLE if is_whole else _ROOM_MAX
        self._out: ColumnBuffers | None = None

    @property
    def starved(self) -> int | None:
        """The source that used up its chunk, until it is fed."""
        return self._starved

    @property
    def room(self) -> Room:
        """How much the chunk of output under way holds at most, or the next one."""
        return self._room_next if self._out is None else self._room

    @property
    def rows(self) -> int:
        """Rows of the output under way; nothing to come can change them."""
        return int(self._state[kernel.ROWS])

    def begin(self, source: int, chunk: Chunk, max_seq: int = U64_MAX) -> bool:
        """Give a source its first chunk; ``False``: no row of it is in range, so it needs another.

        Args:
            source: its number.
            chunk: its rows.
            max_seq: those of them that are above are invisible.

        Raises:
            CorruptionError: the blocks are malformed.
        """
        if not self._load(source, chunk, max_seq):
            return False
        live = int(self._state[kernel.LIVE])
        self._order[1 : live + 1] = self._order[:live].copy()
        self._order[0] = source
        self._state[kernel.LIVE] = live + 1
        insert(*self._addresses[:2], live + 1)
        return True

    def feed(self, chunk: Chunk | None, max_seq: int = U64_MAX) -> bool:
        """Give the starved source its next chunk, or its end; ``False``: no row of it is in range.

        Raises:
            CorruptionError: the blocks are malformed.
        """
        source = self._starved
        assert source is not None, "only a starved source is fed"
        live = int(self._state[kernel.LIVE])
        if chunk is None:
            self._order[: live - 1] = self._order[1:live].copy()
            self._state[kernel.LIVE] = live - 1
            self._inputs[source] = None
        elif self._load(source, chunk, max_seq):
            insert(*self._addresses[:2], live)
        else:
            return False
        self._starved = None
        return True

    def run(self) -> Step:
        """Merge until a source starves, the output is full, or everything is merged.

        Raises:
            CorruptionError: a source is malformed; with its place.
        """
        assert self._starved is None, "a starved source must be fed first"
        if self._out is None:
            self._room = self._room_next
            self._out = ColumnBuffers(self._room.rows, self._room.key_bytes, self._room.value_bytes)
        room = self._room
        status = int(
            kernel.merge_visible(
                *self._addresses, address_of(self._out.addresses), room.rows, room.key_bytes, room.value_bytes
            )
        )
        if status > kernel.BAD_BLOCK:
            raise self._corrupt(int(self._state[kernel.SOURCE]), status - kernel.BAD_BLOCK)
        if status == kernel.STARVED:
            self._starved = int(self._state[kernel.SOURCE])
        return Step(status)

    def take(self) -> Rows:
        """The rows of the output; it begins anew.

        No rows: the output was too small for a single one, and will be larger.
        """
        assert self._out is not None, "rows are taken after a run"
        rows = self._out.rows(0, self.rows)
        if not len(rows):
            self._room_next = self._room.times(2)
        elif self._room.exceeds(self._room_max):
            self._room_next = self._room_max
        else:
            self._room_next = self._room.grown(self._room_max)
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
        status = int(kernel.first_row(self._addresses[0] + source * cursors.CURSOR_BYTES))
        if status not in (cursors.ROW, cursors.USED_UP):
            raise self._corrupt(source, status)
        return status == cursors.ROW

    def _reserve_key(self, size: int) -> None:
        """Room for the current key."""
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


class _ColumnInput:
    """The columns that a cursor is on, kept alive for it."""

    def __init__(self, rows: Rows, words: I64) -> None:
        self._rows = rows
        self._addresses = column_addresses(rows)
        words[:] = 0
        words[cursors.VERSION] = kernel.COLUMNS_VERSION
        words[cursors.DATA] = address_of(self._addresses)
        words[cursors.DATA_END] = address_of(rows.val_bytes) + int(rows.val_offsets[-1])
        words[cursors.ROWS_END] = len(rows)
