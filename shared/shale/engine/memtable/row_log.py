"""Rows in the order of writing: the one copy that the memtable and the WAL buffer share."""

from array import array
from bisect import bisect_left

import numpy as np

from shale.core.ttl import expire_ts
from shale.engine.memtable.row_order import sort_rows
from shale.engine.write.batch import CommitRows
from shale.kernels.rows import Rows
from shale.kernels.strings import strings_column
from shale.types import FLAG_CREATE_TS, FLAG_EXPIRE_TS, Entry

_PLAIN = bytes((FLAG_CREATE_TS,))
_EXPIRING = bytes((FLAG_CREATE_TS | FLAG_EXPIRE_TS,))


class RowLog:
    """An append-only list of rows in columns.

    ``seqs`` ascends; rows of one seq ascend by key.  Columns are Python lists because rows arrive one by one as Python
    objects.  ``rows`` copies any part of them into ``Rows`` and may run in a thread: appends do not disturb it.  Only
    rows with a lifetime have an entry in ``expire_places`` and ``expire_ts``, ascending by place.

    ``stamp_ahead`` fills ``seqs``, ``create_ts`` and ``flags`` for many puts in advance; ``Memtable.append_plain`` then
    appends only keys and values.  So these columns may be longer than ``keys``, which holds the number of rows.
    """

    __slots__ = ("create_ts", "expire_places", "expire_ts", "flags", "keys", "seqs", "stamped_end", "values")

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.values: list[bytes] = []
        self.seqs = array("Q")
        self.create_ts = array("q")
        self.flags = bytearray()
        self.expire_places = array("q")
        self.expire_ts = array("q")
        self.stamped_end = 0
        """Rows below this place have stamps in advance; 0: none have."""

    def __len__(self) -> int:
        return len(self.keys)

    def stamp_ahead(self, count: int, seq: int, create_ts: int, ttl_ms: int | None) -> None:
        """Fill the stamps of the next ``count`` puts; each put has the next sequence number."""
        self.drop_stamps()
        first = len(self.keys)
        end = first + count
        self.seqs[first:end] = array("Q", np.arange(seq, seq + count, dtype=np.uint64).tobytes())
        self.create_ts[first:end] = array("q", (create_ts,)) * count
        self.flags[first:end] = (_PLAIN if ttl_ms is None else _EXPIRING) * count
        if ttl_ms is not None:
            self.expire_places.extend(range(first, end))
            self.expire_ts.extend(array("q", (create_ts + ttl_ms,)) * count)
        self.stamped_end = end

    def drop_stamps(self) -> None:
        """Discard unused stamps of ``stamp_ahead``, because other rows come first."""
        if self.stamped_end and self.expire_places:
            first = bisect_left(self.expire_places, len(self.keys))
            del self.expire_places[first:], self.expire_ts[first:]
        self.stamped_end = 0

    def append(self, entry: Entry) -> int:
        """Append one row of any kind and return its place."""
        self.drop_stamps()
        place = len(self.keys)
        if place < len(self.seqs):
            self.seqs[place], self.create_ts[place], self.flags[place] = entry.seq, entry.create_ts, entry.flags
        else:
            self.seqs.append(entry.seq)
            self.create_ts.append(entry.create_ts)
            self.flags.append(entry.flags)
        self.keys.append(entry.key)
        self.values.append(entry.value)
        if entry.flags & FLAG_EXPIRE_TS:
            self.expire_places.append(place)
            self.expire_ts.append(entry.expire_ts)
        return place

    def append_commit(self, rows: CommitRows, seq: int, create_ts: int) -> int:
        """Append the rows of one batch and return the bytes of their keys and values."""
        self.drop_stamps()
        first, count = len(self.keys), len(rows.keys)
        end = first + count
        self.seqs[first:end] = array("Q", (seq,)) * count
        self.create_ts[first:end] = array("q", (create_ts,)) * count
        self.flags[first:end] = rows.flags
        self.keys += rows.keys
        self.values += rows.values
        for place, lifetime in rows.lifetimes:
            self.expire_places.append(first + place)
            self.expire_ts.append(expire_ts(lifetime, create_ts))
        return sum(map(len, rows.keys)) + sum(map(len, rows.values))

    def entry(self, index: int) -> Entry:
        """Return one row."""
        flags = self.flags[index]
        return Entry(
            self.keys[index],
            self.values[index],
            self.seqs[index],
            flags,
            self.create_ts[index] if flags & FLAG_CREATE_TS else 0,
            self._expire_ts(index) if flags & FLAG_EXPIRE_TS else 0,
        )

    def rows(self, start: int, end: int) -> Rows:
        """Copy rows ``[start, end)`` in the order of writing."""
        key_bytes, key_offsets = strings_column(self.keys, start, end)
        val_bytes, val_offsets = strings_column(self.values, start, end)
        expire_ts = np.zeros(end - start, dtype=np.int64)
        first, last = bisect_left(self.expire_places, start), bisect_left(self.expire_places, end)
        if first < last:
            places = np.array(self.expire_places[first:last], dtype=np.int64)
            expire_ts[places - start] = np.array(self.expire_ts[first:last], dtype=np.int64)
        return Rows(
            key_bytes=key_bytes,
            key_offsets=key_offsets,
            val_bytes=val_bytes,
            val_offsets=val_offsets,
            seq=np.array(self.seqs[start:end], dtype=np.uint64),
            flags=np.frombuffer(bytes(self.flags[start:end]), dtype=np.uint8),
            create_ts=np.array(self.create_ts[start:end], dtype=np.int64),
            expire_ts=expire_ts,
        )

    def sorted_rows(self, start: int, end: int) -> Rows:
        """Copy rows ``[start, end)`` by key, then seq descending."""
        return sort_rows(self.rows(start, end))

    def _expire_ts(self, index: int) -> int:
        return self.expire_ts[bisect_left(self.expire_places, index)]
