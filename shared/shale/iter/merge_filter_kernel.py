"""Drives the merge kernel: feeds chunks and takes rows out, without waiting."""

import ctypes
from enum import IntEnum

import numpy as np

from shale.core.lazy_dataclass import dataclass
from shale.kernels.columns import COLUMNS, ColumnBuffers, address_of, column_addresses
from shale.kernels.dispatch import compiled
from shale.kernels.layout import merge_columns as kernel
from shale.kernels.merge_rules import MergeRules
from shale.kernels.rows import Rows


class Step(IntEnum):
    """Why the kernel stopped; with the values of the kernel."""

    DONE = kernel.DONE
    NEED_INPUT = kernel.NEED_INPUT
    FULL = kernel.FULL


@dataclass(frozen=True, slots=True)
class OutputCapacity:
    """Capacity of the output buffers."""

    rows: int
    key_bytes: int
    value_bytes: int

    def times(self, factor: int) -> "OutputCapacity":
        """Return this capacity times a factor."""
        return OutputCapacity(self.rows * factor, self.key_bytes * factor, self.value_bytes * factor)

    def grown(self, limit: "OutputCapacity") -> "OutputCapacity":
        """Return more, up to ``limit``, and never less: rows that are not final must still fit."""
        more = self.times(_GROWTH)
        return OutputCapacity(
            max(self.rows, min(more.rows, limit.rows)),
            max(self.key_bytes, min(more.key_bytes, limit.key_bytes)),
            max(self.value_bytes, min(more.value_bytes, limit.value_bytes)),
        )

    def shrunk(self, limit: "OutputCapacity", rest: Rows) -> "OutputCapacity":
        """Return at most ``limit``, but enough for the rows that are not final."""
        return OutputCapacity(
            max(min(self.rows, limit.rows), 2 * len(rest)),
            max(min(self.key_bytes, limit.key_bytes), 2 * int(rest.key_offsets[-1] - rest.key_offsets[0])),
            max(min(self.value_bytes, limit.value_bytes), 2 * int(rest.val_offsets[-1] - rest.val_offsets[0])),
        )

    def exceeds(self, limit: "OutputCapacity") -> bool:
        """Return whether this is more than ``limit``, as a large row or many tombstones of one key need."""
        return self.rows > limit.rows or self.key_bytes > limit.key_bytes or self.value_bytes > limit.value_bytes


CAPACITY_FIRST = OutputCapacity(512, 32 << 10, 128 << 10)
"""The first buffers are small: a scan may need no more rows."""
CAPACITY_MAX = OutputCapacity(32 << 10, 2 << 20, 4 << 20)
"""A compromise between thread hops (few rows) and memory (many rows)."""
CAPACITY_LOW_MEMORY = OutputCapacity(8 << 10, 512 << 10, 1 << 20)
"""For compactions, where several stages in several ranges hold output at once."""
_GROWTH = 4


class MergeFilterKernel:
    """The state of one merge of ``source_count`` sources, in order of precedence."""

    def __init__(self, source_count: int, rules: MergeRules, *, low_memory: bool = False) -> None:
        self._sources = np.zeros((max(source_count, 1), kernel.SOURCE_WORDS), np.int64)
        self._order = np.zeros(max(source_count, 1), np.int64)
        self._state = np.zeros(kernel.STATE_WORDS, np.int64)
        self._rules = kernel.encode_rules(rules)
        self._chunks: list[Rows | None] = [None] * source_count
        self._key = np.zeros(0, np.uint8)
        self._capacity = CAPACITY_FIRST
        self._capacity_max = CAPACITY_LOW_MEMORY if low_memory else CAPACITY_MAX
        self._out = self._buffers(CAPACITY_FIRST)

    @property
    def capacity(self) -> OutputCapacity:
        """The capacity of the next chunk of output."""
        return self._capacity

    @property
    def source_needing_input(self) -> int:
        """The source that used up its chunk."""
        return int(self._state[kernel.SOURCE])

    @property
    def final_rows(self) -> int:
        """Rows of the output that later input cannot change."""
        return int(self._state[kernel.FINAL_ROWS])

    def take_expired(self) -> tuple[int, int]:
        """Return the numbers of values and operands that expired since the last call."""
        words = self._state[kernel.EXPIRED_VALUES : kernel.EXPIRED_OPERANDS + 1]
        values, operands = words.tolist()
        words[:] = 0
        return values, operands

    def begin(self, source: int, rows: Rows) -> None:
        """Add a source with its first chunk."""
        live = int(self._state[kernel.LIVE])
        self._order[1 : live + 1] = self._order[:live]
        self._order[0] = source
        self._state[kernel.LIVE] = live + 1
        self._load(source, rows)

    def feed(self, rows: Rows | None) -> None:
        """Give the source that needs input its next chunk, or its end."""
        source = self.source_needing_input
        self._keep_key()
        if rows is not None:
            self._load(source, rows)
            return
        live = int(self._state[kernel.LIVE]) - 1
        self._order[:live] = self._order[1 : live + 1].copy()
        self._state[kernel.LIVE] = live
        self._chunks[source] = None

    def run(self) -> Step:
        """Merge until a source needs input, the output is full, or all input is merged."""
        capacity = self._capacity
        return Step(
            compiled.merge_filter(
                address_of(self._sources),
                address_of(self._order),
                address_of(self._rules),
                address_of(self._state),
                address_of(self._out.addresses),
                capacity.rows,
                capacity.key_bytes,
                capacity.value_bytes,
            )
        )

    def take(self) -> Rows:
        """Return the final rows and start a new output with the others.

        Without final rows the output was too small for one key; the next output is larger.
        """
        state = self._state
        final_rows, total = int(state[kernel.FINAL_ROWS]), int(state[kernel.ROWS])
        final, rest = self._out.rows(0, final_rows), self._out.rows(final_rows, total)
        if not final_rows:
            self._capacity = self._capacity.times(2)
        elif self._capacity.exceeds(self._capacity_max):
            self._capacity = self._capacity.shrunk(self._capacity_max, rest)
        elif self._capacity.rows < self._capacity_max.rows:
            self._capacity = self._capacity.grown(self._capacity_max)
        self._out = self._buffers(self._capacity)
        self._out.put(rest)
        state[kernel.ROWS] = len(rest)
        state[kernel.FINAL_ROWS] = 0
        state[kernel.KEYS_AT] = int(rest.key_offsets[-1] - rest.key_offsets[0])
        state[kernel.VALUES_AT] = int(rest.val_offsets[-1] - rest.val_offsets[0])
        return final

    @staticmethod
    def _buffers(capacity: OutputCapacity) -> ColumnBuffers:
        return ColumnBuffers(capacity.rows, capacity.key_bytes, capacity.value_bytes)

    def _load(self, source: int, rows: Rows) -> None:
        row = self._sources[source]
        row[:COLUMNS] = column_addresses(rows)
        row[kernel.AT] = 0
        row[kernel.COUNT] = len(rows)
        self._chunks[source] = rows
        compiled.insert_source(address_of(self._sources), address_of(self._order), 0, int(self._state[kernel.LIVE]))

    def _keep_key(self) -> None:
        """Copy the current key, whose chunk is about to be released."""
        size = int(self._state[kernel.KEY_LEN])
        key = ctypes.string_at(int(self._state[kernel.KEY]), size)
        self._key = np.frombuffer(key + b"\0", np.uint8)
        self._state[kernel.KEY] = address_of(self._key)
