"""Drives the merging kernel: feeds it chunks and takes rows out.  No waiting happens here."""

import ctypes
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from shale.kernels import fuse as kernel
from shale.kernels.columns import COLUMNS, ColumnBuffers, address_of, column_addresses
from shale.kernels.rows import Rows
from shale.kernels.rules import Rules


class Step(IntEnum):
    """Why the kernel stopped; the values are its own."""

    DONE = kernel.DONE
    STARVED = kernel.STARVED
    FULL = kernel.FULL


@dataclass(frozen=True, slots=True)
class Room:
    """How much output there is room for."""

    rows: int
    key_bytes: int
    value_bytes: int

    def times(self, factor: int) -> "Room":
        """More of everything."""
        return Room(self.rows * factor, self.key_bytes * factor, self.value_bytes * factor)

    def grown(self, limit: "Room") -> "Room":
        """More of everything, up to ``limit``; never less, since what is not final yet must still fit."""
        more = self.times(_GROWTH)
        return Room(
            max(self.rows, min(more.rows, limit.rows)),
            max(self.key_bytes, min(more.key_bytes, limit.key_bytes)),
            max(self.value_bytes, min(more.value_bytes, limit.value_bytes)),
        )

    def shrunk(self, limit: "Room", rest: Rows) -> "Room":
        """No more than ``limit``, but enough for what is not final yet."""
        return Room(
            max(min(self.rows, limit.rows), 2 * len(rest)),
            max(min(self.key_bytes, limit.key_bytes), 2 * int(rest.key_offsets[-1] - rest.key_offsets[0])),
            max(min(self.value_bytes, limit.value_bytes), 2 * int(rest.val_offsets[-1] - rest.val_offsets[0])),
        )

    def exceeds(self, limit: "Room") -> bool:
        """Whether a large row, or many tombstones of one key, needed more than ``limit``."""
        return self.rows > limit.rows or self.key_bytes > limit.key_bytes or self.value_bytes > limit.value_bytes


ROOM_FIRST = Room(512, 32 << 10, 128 << 10)
"""Little at first, since a scan may want no more."""
ROOM_MAX = Room(32 << 10, 2 << 20, 4 << 20)
"""Fewer rows would cost more hops between threads, more rows more memory."""
ROOM_FRUGAL = Room(8 << 10, 512 << 10, 1 << 20)
"""Where several stages follow each other, each with output of its own, in several ranges side by side."""
_GROWTH = 4


class KernelFuse:
    """The state of one merge of ``source_count`` sources, in order of precedence."""

    def __init__(self, source_count: int, rules: Rules, *, is_frugal: bool = False) -> None:
        self._sources = np.zeros((max(source_count, 1), kernel.SOURCE_WORDS), np.int64)
        self._order = np.zeros(max(source_count, 1), np.int64)
        self._state = np.zeros(kernel.STATE_WORDS, np.int64)
        self._rules = kernel.rule_words(rules)
        self._chunks: list[Rows | None] = [None] * source_count
        self._key = np.zeros(0, np.uint8)
        self._room = ROOM_FIRST
        self._room_max = ROOM_FRUGAL if is_frugal else ROOM_MAX
        self._out = self._buffers(ROOM_FIRST)

    @property
    def room(self) -> Room:
        """How much the next chunk of output holds."""
        return self._room

    @property
    def starved(self) -> int:
        """The source that used up its chunk."""
        return int(self._state[kernel.SOURCE])

    @property
    def settled(self) -> int:
        """Rows of the output that nothing to come can change."""
        return int(self._state[kernel.SETTLED])

    def take_expired(self) -> tuple[int, int]:
        """Values and operands that expired since the last call."""
        words = self._state[kernel.EXPIRED_VALUES : kernel.EXPIRED_OPERANDS + 1]
        values, operands = words.tolist()
        words[:] = 0
        return values, operands

    def begin(self, source: int, rows: Rows) -> None:
        """Give a source its first chunk."""
        live = int(self._state[kernel.LIVE])
        self._order[1 : live + 1] = self._order[:live]
        self._order[0] = source
        self._state[kernel.LIVE] = live + 1
        self._load(source, rows)

    def feed(self, rows: Rows | None) -> None:
        """Give the starved source its next chunk, or its end."""
        source = self.starved
        self._keep_key()
        if rows is not None:
            self._load(source, rows)
            return
        live = int(self._state[kernel.LIVE]) - 1
        self._order[:live] = self._order[1 : live + 1].copy()
        self._state[kernel.LIVE] = live
        self._chunks[source] = None

    def run(self) -> Step:
        """Merge until a source starves, the output is full, or everything is merged."""
        room = self._room
        return Step(
            kernel.fuse(
                address_of(self._sources),
                address_of(self._order),
                self._rules,
                self._state,
                self._out.addresses,
                room.rows,
                room.key_bytes,
                room.value_bytes,
            )
        )

    def take(self) -> Rows:
        """The final rows of the output; it begins anew, with what is not final yet.

        No rows: the output was too small for a single one, and is larger now.
        """
        state = self._state
        settled, total = int(state[kernel.SETTLED]), int(state[kernel.ROWS])
        final, rest = self._out.rows(0, settled), self._out.rows(settled, total)
        if not settled:
            self._room = self._room.times(2)
        elif self._room.exceeds(self._room_max):
            self._room = self._room.shrunk(self._room_max, rest)
        elif self._room.rows < self._room_max.rows:
            self._room = self._room.grown(self._room_max)
        self._out = self._buffers(self._room)
        self._out.put(rest)
        state[kernel.ROWS] = len(rest)
        state[kernel.SETTLED] = 0
        state[kernel.KEYS_AT] = int(rest.key_offsets[-1] - rest.key_offsets[0])
        state[kernel.VALUES_AT] = int(rest.val_offsets[-1] - rest.val_offsets[0])
        return final

    @staticmethod
    def _buffers(room: Room) -> ColumnBuffers:
        return ColumnBuffers(room.rows, room.key_bytes, room.value_bytes)

    def _load(self, source: int, rows: Rows) -> None:
        row = self._sources[source]
        row[:COLUMNS] = column_addresses(rows)
        row[kernel.AT] = 0
        row[kernel.COUNT] = len(rows)
        self._chunks[source] = rows
        kernel.insert(address_of(self._sources), address_of(self._order), 0, int(self._state[kernel.LIVE]))

    def _keep_key(self) -> None:
        """The current key lies in the chunk that goes."""
        size = int(self._state[kernel.KEY_LEN])
        key = ctypes.string_at(int(self._state[kernel.KEY]), size)
        self._key = np.frombuffer(key + b"\0", np.uint8)
        self._state[kernel.KEY] = address_of(self._key)
