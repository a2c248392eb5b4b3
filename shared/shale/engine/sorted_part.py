"""Sorted rows that are searched by key in plain Python: frozen memtables and what scans see of the active one."""

from bisect import bisect_left

from shale.kernels.rows import Rows
from shale.types import Entry, KeyRange


class SortedPart:
    """Rows by key, then seq descending.  A lookup costs some microseconds, and nothing is built per row."""

    __slots__ = ("_arena", "_bounds", "_count", "rows")

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self._arena = rows.key_bytes.data
        self._bounds = rows.key_offsets.data
        self._count = len(rows)

    def __len__(self) -> int:
        return self._count

    def versions(self, key: bytes, max_seq: int | None) -> list[Entry]:
        """All versions of a key up to ``max_seq``, newest first."""
        found: list[Entry] = []
        index = self.place_of(key)
        while index < self._count and self.key_at(index) == key:
            entry = entry_at(self.rows, index)
            if max_seq is None or entry.seq <= max_seq:
                found.append(entry)
            index += 1
        return found

    def slice(self, key_range: KeyRange | None) -> Rows:
        """The rows whose keys lie in the range, sharing the buffers."""
        if key_range is None:
            return self.rows
        first, end = key_range.first_key, key_range.end_key
        start = 0 if first is None else self.place_of(first)
        stop = self._count if end is None else self.place_of(end)
        return self.rows.slice(start, max(start, stop))

    def first_key(self) -> bytes:
        """The smallest key; there must be rows."""
        return self.key_at(0)

    def last_key(self) -> bytes:
        """The greatest key; there must be rows."""
        return self.key_at(self._count - 1)

    def place_of(self, key: bytes) -> int:
        """How many rows have smaller keys."""
        return bisect_left(range(self._count), key, key=self.key_at)

    def key_at(self, index: int) -> bytes:
        """The key of one row."""
        bounds = self._bounds
        return bytes(self._arena[bounds[index] : bounds[index + 1]])


def entry_at(rows: Rows, index: int) -> Entry:
    """One row of columns as a value."""
    return Entry(
        rows.key(index),
        rows.value(index),
        int(rows.seq[index]),
        int(rows.flags[index]),
        int(rows.create_ts[index]),
        int(rows.expire_ts[index]),
    )
