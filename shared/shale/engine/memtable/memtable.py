"""The memtable: rows that are not in L0 yet (docs/concepts/architecture.md, "The memtable").

A table that takes writes is a dict from key to its newest row, plus the log of all rows.  The first scan makes sorted
columns of the log; later scans extend them.  Rows that arrive as sorted columns are kept as they are, beside the log.
A frozen table keeps nothing but sorted columns.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter

import numpy as np

from shale.engine.memtable.row_log import RowLog
from shale.engine.memtable.row_order import merged_parts
from shale.engine.memtable.sorted_log import SortedLog
from shale.engine.memtable.sorted_part import SortedPart
from shale.engine.write.batch import CommitRows
from shale.kernels.rows import Rows, concat_rows
from shale.types import FLAG_MERGE, FLAG_TOMBSTONE, Entry, KeyRange

ROW_OVERHEAD_BYTES = 28
"""Estimated bytes of a row in an SST besides key and value: seq, flags, times, lengths, its share of metadata."""

_NOT_A_VALUE = FLAG_MERGE | FLAG_TOMBSTONE


class Memtable:
    """All versions of all keys of one range of sequence numbers.

    Rows must come in ascending seq, and rows of one seq in ascending key order, one per key.
    """

    __slots__ = (
        "__weakref__",
        "_base",
        "_below",
        "_indexed",
        "_plain_key_bytes_max",
        "_plain_size_bytes_max",
        "columns",
        "index",
        "is_only_log",
        "log",
        "size_bytes",
        "sorted_log",
    )

    def __init__(self) -> None:
        self.log = RowLog()
        self.sorted_log = SortedLog(self.log)
        self.index: dict[bytes, int] = {}
        self.size_bytes = 0
        self.is_only_log = True
        """Whether every row is in the log, so that ``index`` has every key."""
        self._base: list[SortedPart] = []
        self._below: dict[int, int] = {}
        """Maps the log index of an operand to the log index of the previous row of its key."""
        self.columns: list[SortedPart] = []
        """Rows that arrived as columns, in the order of arrival."""
        self._indexed = True
        self._plain_key_bytes_max = self._plain_size_bytes_max = 0

    @classmethod
    def from_rows(cls, *parts: Rows, writable: bool = False) -> "Memtable":
        """Return a table of rows in any order; takes milliseconds if there are many.

        Args:
            parts: the rows; no (key, seq) occurs twice.
            writable: whether rows are appended later; they must be newer.
        """
        table = cls()
        rows = merged_parts(parts)
        if len(rows):
            table._base = [SortedPart(rows)]
            table.is_only_log = False
            table.size_bytes = rows.size_bytes + ROW_OVERHEAD_BYTES * len(rows)
        table._indexed = writable
        return table

    def __len__(self) -> int:
        return len(self.log) + sum(map(len, self._sealed))

    @property
    def first_seq(self) -> int:
        """The oldest seq; 0 without rows."""
        oldest = [int(part.rows.seq.min()) for part in self._sealed]
        if len(self.log):
            oldest.append(self.log.seqs[0])
        return min(oldest, default=0)

    @property
    def last_seq(self) -> int:
        """The newest seq; 0 without rows."""
        newest = [int(part.rows.seq.max()) for part in self._sealed]
        if len(self.log):
            newest.append(self.log.seqs[len(self.log) - 1])
        return max(newest, default=0)

    def append(self, entry: Entry) -> None:
        """Append one row of any kind."""
        assert self._indexed, "a frozen table takes no writes"
        place = self.log.append(entry)
        if entry.flags & FLAG_MERGE and (before := self.index.get(entry.key)) is not None:
            self._below[place] = before
        self.index[entry.key] = place
        self.size_bytes += len(entry.key) + len(entry.value) + ROW_OVERHEAD_BYTES

    def limit_plain(self, key_bytes_max: int, size_bytes_max: int) -> None:
        """Set the longest key that ``append_plain`` takes, and the table size below which it takes rows."""
        self._plain_key_bytes_max, self._plain_size_bytes_max = key_bytes_max, size_bytes_max

    def append_plain(self, key: object, value: object) -> bool:
        """Append one value whose stamps ``RowLog.stamp_ahead`` has prepared; return whether that was possible.

        This is the fast path of a put.  It appends to the columns directly: a call would take as long as the work.
        """
        log = self.log
        keys = log.keys
        place = len(keys)
        if (
            place < log.stamped_end
            and type(key) is bytes
            and 0 < len(key) <= self._plain_key_bytes_max
            and type(value) is bytes
            and (size := self.size_bytes + len(key) + len(value) + ROW_OVERHEAD_BYTES) < self._plain_size_bytes_max
        ):
            self.index[key] = place
            keys.append(key)
            log.values.append(value)
            self.size_bytes = size
            return True
        return False

    def append_commit(self, rows: CommitRows, seq: int, create_ts: int, *, has_operands: bool = False) -> int:
        """Append the rows of one batch and return the size of the table with them."""
        assert self._indexed, "a frozen table takes no writes"
        first, count = len(self.log), len(rows.keys)
        size = self.log.append_commit(rows, seq, create_ts)
        if has_operands:
            for place, key in enumerate(rows.keys, first):
                if (before := self.index.get(key)) is not None:
                    self._below[place] = before
        self.index.update(zip(rows.keys, range(first, first + count), strict=True))
        self.size_bytes += size + count * ROW_OVERHEAD_BYTES
        return self.size_bytes

    @classmethod
    def from_sorted(cls, parts: Sequence[Rows]) -> "Memtable":
        """Return a writable table of several parts, each by key, then seq descending."""
        table = cls()
        for rows in parts:
            table.append_columns(rows)
        return table

    def append_columns(self, rows: Rows) -> None:
        """Append sorted rows as they are: a commit, or what was replayed."""
        assert self._indexed, "a frozen table takes no writes"
        self.columns.append(SortedPart(rows))
        self.is_only_log = False
        self.size_bytes += rows.size_bytes + ROW_OVERHEAD_BYTES * len(rows)

    def get(self, key: bytes, max_seq: int | None = None) -> Sequence[Entry]:
        """Return versions of a key up to ``max_seq``, newest first, down to the newest that is no operand."""
        if not self.columns:
            return self._logged(key, max_seq)
        found = [*self._logged(key, max_seq)]
        for part in self.columns:
            found += part.visible_versions(key, max_seq)
        found.sort(key=_seq_of, reverse=True)
        for place, entry in enumerate(found):
            if not entry.is_merge:
                return found[: place + 1]
        return found

    def newest_value(self, key: bytes) -> bytes | None:
        """Return the newest value of a key; ``None`` if the table has no row of it.

        Raises:
            LookupError: the newest row is a tombstone or a merge operand.
        """
        if not self.is_only_log:
            versions = self.get(key)
            if versions and versions[0].flags & _NOT_A_VALUE:
                raise LookupError
            return versions[0].value if versions else None
        place = self.index.get(key)
        if place is None:
            return None
        log = self.log
        if log.flags[place] & _NOT_A_VALUE:
            raise LookupError
        return log.values[place]

    def _logged(self, key: bytes, max_seq: int | None) -> Sequence[Entry]:
        """Return the versions that did not arrive as columns; see ``get``."""
        place = self.index.get(key)
        if place is not None:
            log = self.log
            if not log.flags[place] & FLAG_MERGE:
                if max_seq is None or log.seqs[place] <= max_seq:
                    return (log.entry(place),)
            elif (chain := self._chain(place, max_seq)) is not None:
                return chain
        elif not self._base:
            return ()
        found: list[Entry] = []
        for part in reversed(self._logged_parts() if place is not None else self._base):
            found += part.visible_versions(key, max_seq)
            if found and not found[-1].is_merge:
                break
        return found

    def _chain(self, place: int, max_seq: int | None) -> list[Entry] | None:
        """Return the versions of a key whose newest row is an operand, without sorting the log.

        Returns:
            ``None`` if the visible versions lie below a newer value, where the chain of operands does not lead.
        """
        log, found = self.log, list[Entry]()
        while True:
            is_operand = log.flags[place] & FLAG_MERGE
            if max_seq is None or log.seqs[place] <= max_seq:
                found.append(log.entry(place))
                if not is_operand:
                    return found
            elif not is_operand:
                return None
            below = self._below.get(place)
            if below is None:
                break
            place = below
        key = log.keys[place]
        for part in self._base:
            found += part.visible_versions(key, max_seq)
        return found

    def last_seq_of(self, key: bytes) -> int:
        """Return the sequence number of the newest row of a key; 0 without one."""
        place = self.index.get(key)
        logged = 0 if place is None else self.log.seqs[place]
        if place is not None and not self.columns:
            return logged
        return max([logged, *(entry.seq for part in self._sealed for entry in part.visible_versions(key, None)[:1])])

    def seqs_of(self, key: bytes) -> list[int]:
        """Return the sequence numbers of all rows of a key."""
        return [entry.seq for part in self.sorted_parts() for entry in part.versions(key, None)]

    def writes_after(self, seq: int, key_range: KeyRange) -> Iterator[tuple[bytes, int]]:
        """Yield key and sequence number of every row in a range that is newer than ``seq``, in no order."""
        for part in self._sealed:
            rows = part.slice(key_range)
            for place in np.flatnonzero(rows.seq > np.uint64(seq)).tolist():
                yield rows.key(place), int(rows.seq[place])
        log, first, end = self.log, key_range.first_key or b"", key_range.end_key
        start = bisect_right(log.seqs, seq, 0, len(log))
        for place, key in enumerate(log.keys[start:], start):
            if first <= key and (end is None or key < end):
                yield key, log.seqs[place]

    def sorted_parts(self) -> list[SortedPart]:
        """Return the rows in sorted parts; no (key, seq) occurs twice.

        Rows that are written later are not in them.
        """
        if self.is_only_log:
            return [*self.sorted_log.parts()]
        return [*self._logged_parts(), *self.columns]

    def rows(self, key_range: KeyRange | None = None) -> Rows:
        """Return the rows in a range by key, then seq descending."""
        parts = [rows for part in self.sorted_parts() if len(rows := part.slice(key_range))]
        if len(parts) == 1:
            return parts[0]
        return merged_parts(parts)

    def freeze(self) -> Rows:
        """Return all rows sorted; may run in a thread while the table is read.  ``adopt`` takes the result."""
        parts = [part.rows for part in self._sealed]
        count = len(self.log)
        if count:
            parts.append(self.log.rows(0, count))
        return merged_parts(parts) if len(parts) > 1 or count else concat_rows(parts)

    def adopt(self, rows: Rows) -> None:
        """Keep only the result of ``freeze``: it takes a third of the memory and holds no Python object per row."""
        assert len(rows) == len(self), "rows were added after the freeze"
        self._base, self.columns = ([SortedPart(rows)] if len(rows) else []), []
        self.is_only_log = not len(rows)
        self.log, self.index, self._below = RowLog(), {}, {}
        self.sorted_log = SortedLog(self.log)
        self._indexed = False

    @property
    def _sealed(self) -> list[SortedPart]:
        """The rows that are not in the log."""
        return [*self._base, *self.columns]

    def _logged_parts(self) -> list[SortedPart]:
        return [*self._base, *self.sorted_log.parts()]


_seq_of = attrgetter("seq")
