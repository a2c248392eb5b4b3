"""Sorted rows that are searched by key in plain Python: the parts of memtables."""

from bisect import bisect_left
from collections.abc import Sequence

from shale.engine.memtable.row_order import merged_parts
from shale.env import Cpu
from shale.kernels.columns import address_of, column_addresses
from shale.kernels.rows import I64, Rows
from shale.types import Entry, KeyRange

_PARTS_MAX = 24
"""With more parts lookups are slow, because each of them searches all parts."""


class SortedPart:
    """Rows by key, then seq descending.  A lookup takes some microseconds and builds nothing per row."""

    __slots__ = ("_addresses", "_arena", "_bounds", "_count", "rows")

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self._arena = rows.key_bytes.data
        self._bounds = rows.key_offsets.data
        self._count = len(rows)
        self._addresses: I64 | None = None

    def __len__(self) -> int:
        return self._count

    @property
    def columns_address(self) -> int:
        """Where kernels find the addresses of the columns."""
        if self._addresses is None:
            self._addresses = column_addresses(self.rows)
        return address_of(self._addresses)

    def versions(self, key: bytes, max_seq: int | None) -> list[Entry]:
        """Return all versions of a key up to ``max_seq``, newest first."""
        found: list[Entry] = []
        index = self.lower_bound(key)
        while index < self._count and self.key_at(index) == key:
            entry = entry_at(self.rows, index)
            if max_seq is None or entry.seq <= max_seq:
                found.append(entry)
            index += 1
        return found

    def visible_versions(self, key: bytes, max_seq: int | None) -> list[Entry]:
        """Return the versions of a key up to ``max_seq``, newest first, down to the newest that is no operand.

        A key that is written again and again has thousands of rows, of which a reader needs one.
        """
        found: list[Entry] = []
        index = self.lower_bound(key)
        if max_seq is not None and index < self._count and self.key_at(index) == key:
            seqs, end = self.rows.seq, self.lower_bound(key + b"\0")
            index = bisect_left(range(end), True, index, key=lambda place: int(seqs[place]) <= max_seq)
        while index < self._count and self.key_at(index) == key:
            found.append(entry_at(self.rows, index))
            if not found[-1].is_merge:
                break
            index += 1
        return found

    def slice(self, key_range: KeyRange | None) -> Rows:
        """Return the rows in a key range; they share the buffers."""
        if key_range is None:
            return self.rows
        first, end = key_range.first_key, key_range.end_key
        start = 0 if first is None else self.lower_bound(first)
        stop = self._count if end is None else self.lower_bound(end)
        return self.rows.slice(start, max(start, stop))

    def first_key(self) -> bytes:
        """Return the smallest key; the part must have rows."""
        return self.key_at(0)

    def last_key(self) -> bytes:
        """Return the greatest key; the part must have rows."""
        return self.key_at(self._count - 1)

    def lower_bound(self, key: bytes) -> int:
        """Return the number of rows with smaller keys."""
        return bisect_left(range(self._count), key, key=self.key_at)

    def key_at(self, index: int) -> bytes:
        """Return the key of one row."""
        bounds = self._bounds
        return bytes(self._arena[bounds[index] : bounds[index + 1]])


def entry_at(rows: Rows, index: int) -> Entry:
    """Return one row of columns as an ``Entry``."""
    return Entry(
        rows.key(index),
        rows.value(index),
        int(rows.seq[index]),
        int(rows.flags[index]),
        int(rows.create_ts[index]),
        int(rows.expire_ts[index]),
    )


def needs_merge(parts: Sequence[SortedPart]) -> bool:
    """Return whether there are so many parts that ``merge_parts`` is due."""
    return len(parts) >= _PARTS_MAX


async def merge_parts(parts: list[SortedPart], cpu: Cpu) -> None:
    """Merge parts into few, in place, without blocking the loop; others may be appended meanwhile.

    A part stays as it is if it is more than twice as large as all parts after it.  So a row of many small commits is
    merged O(log n) times.
    """
    start, count = len(parts), 0
    while start and (not count or len(parts[start - 1]) <= 2 * count):
        start -= 1
        count += len(parts[start])
    chosen = tuple(parts[start:])
    if len(chosen) < 2:
        return
    rows = await cpu.run(lambda: merged_parts([part.rows for part in chosen]))
    end = start + len(chosen)
    if tuple(parts[start:end]) == chosen:
        parts[start:end] = [SortedPart(rows)]
