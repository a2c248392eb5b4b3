"""Rows that are in a memtable and not in the WAL yet (docs/reference/protocol.md 4.7).

The buffer holds no rows of its own.  Memtables log rows in the order of writing; a WAL file is a range of that log,
perhaps of two memtables, and of the commits in between that arrived as columns.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from typing import TypeAlias

from shale.core.lazy_dataclass import dataclass
from shale.engine.memtable.memtable import ROW_OVERHEAD_BYTES, Memtable
from shale.engine.memtable.row_log import RowLog
from shale.kernels.rows import Rows

_PIECE_ROWS = 2048
"""Rows that are copied at a time: in memory that is used again, fresh pages for all of a file would cost more."""


@dataclass(frozen=True, slots=True)
class LogRange:
    """Rows ``[start, end)`` of a log; not empty."""

    log: RowLog
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start

    @property
    def first_seq(self) -> int:
        """The oldest sequence number."""
        return self.log.seqs[self.start]

    @property
    def last_seq(self) -> int:
        """The newest sequence number."""
        return self.log.seqs[self.end - 1]

    @property
    def first_create_ts(self) -> int:
        """Commit time of the oldest row, in milliseconds."""
        return self.log.create_ts[self.start]

    @property
    def size_bytes(self) -> int:
        """Estimated bytes of the rows; takes time for each row."""
        log, rows = self.log, slice(self.start, self.end)
        return sum(map(len, log.keys[rows])) + sum(map(len, log.values[rows])) + ROW_OVERHEAD_BYTES * len(self)

    def split_last_commit(self) -> "tuple[LogRange | None, LogRange]":
        """Return the rows before the last commit, if there are any, and the last commit."""
        first = bisect_left(self.log.seqs, self.last_seq, self.start, self.end)
        before = None if first == self.start else LogRange(self.log, self.start, first)
        return before, LogRange(self.log, first, self.end)

    def pieces(self) -> Iterator[Rows]:
        """Copy the rows piece by piece, by ascending seq."""
        for start in range(self.start, self.end, _PIECE_ROWS):
            yield self.log.rows(start, min(start + _PIECE_ROWS, self.end))


@dataclass(frozen=True, slots=True)
class ColumnCommit:
    """The rows of one commit in key order, shared with the memtable; not empty."""

    columns: Rows

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def first_seq(self) -> int:
        """The sequence number of all rows."""
        return int(self.columns.seq[0])

    @property
    def last_seq(self) -> int:
        """The sequence number of all rows."""
        return self.first_seq

    @property
    def first_create_ts(self) -> int:
        """The commit time in milliseconds."""
        return int(self.columns.create_ts[0])

    @property
    def size_bytes(self) -> int:
        """Estimated bytes of the rows."""
        return self.columns.size_bytes + ROW_OVERHEAD_BYTES * len(self)

    def split_last_commit(self) -> "tuple[None, ColumnCommit]":
        """Return this commit, which has no rows before it."""
        return None, self

    def pieces(self) -> Iterator[Rows]:
        """Yield the rows without copying."""
        yield self.columns


RowRange: TypeAlias = LogRange | ColumnCommit


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingWalFile:
    """A WAL file that is not written yet; its id and rows are fixed."""

    id: int
    ranges: tuple[RowRange, ...]
    size_bytes: int

    @property
    def first_seq(self) -> int:
        """The oldest sequence number."""
        return self.ranges[0].first_seq

    @property
    def last_seq(self) -> int:
        """The newest sequence number."""
        return self.ranges[-1].last_seq

    @property
    def first_create_ts(self) -> int:
        """Commit time of the oldest row, in milliseconds."""
        return self.ranges[0].first_create_ts

    @property
    def row_count(self) -> int:
        """The number of rows."""
        return sum(map(len, self.ranges))

    def pieces(self) -> Iterator[Rows]:
        """Yield the rows piece by piece, by ascending seq; may run in a thread."""
        for rows in self.ranges:
            yield from rows.pieces()


class WalBuffer:
    """Rows that the WAL lacks: complete files, oldest first, and rows without a file."""

    __slots__ = ("_carried", "_carried_bytes", "_files_bytes", "_start", "_start_bytes", "_table", "files", "next_id")

    def __init__(self, next_id: int, table: Memtable) -> None:
        """Start after the rows that ``table`` already has: they came from the WAL."""
        self.files: deque[PendingWalFile] = deque()
        self.next_id = next_id
        self._carried: list[RowRange] = []
        self._carried_bytes = 0
        self._files_bytes = 0
        self._table = table
        self._start = len(table.log)
        self._start_bytes = table.size_bytes

    @property
    def pending_bytes(self) -> int:
        """Estimated bytes of the rows without a file."""
        return self._carried_bytes + self._table.size_bytes - self._start_bytes

    @property
    def size_bytes(self) -> int:
        """Estimated bytes of all rows that the WAL lacks."""
        return self._files_bytes + self.pending_bytes

    def set_active(self, table: Memtable) -> None:
        """Take rows from another memtable from now on; keep the pending rows of the old one."""
        self._carry()
        self._table, self._start, self._start_bytes = table, len(table.log), table.size_bytes

    def append_columns(self, rows: Rows) -> None:
        """Add a commit in columns to the active memtable, after the rows of its log."""
        self._carry()
        self._table.append_columns(rows)
        self._carried.append(ColumnCommit(rows))
        self._count_bytes()

    def freeze(self) -> None:
        """Make a file with the next id of all rows without a file, if there are any."""
        self._carry()
        self._close_file()

    def separate_last_commit(self, bytes_min: int) -> bool:
        """Make a file of the last commit, and one of the rows before it, if the commit has at least ``bytes_min``.

        Returns:
            Whether the commit is that large and was without a file.
        """
        self._carry()
        if not self._carried:
            return False
        before, commit = self._carried[-1].split_last_commit()
        size = commit.size_bytes
        if size < bytes_min:
            return False
        self._carried[-1:] = [] if before is None else [before]
        self._carried_bytes -= size
        self._close_file()
        self._carried, self._carried_bytes = [commit], size
        self._close_file()
        return True

    def _close_file(self) -> None:
        if self._carried:
            file = PendingWalFile(id=self.next_id, ranges=tuple(self._carried), size_bytes=self._carried_bytes)
            self.files.append(file)
            self.next_id += 1
            self._files_bytes += file.size_bytes
            self._carried, self._carried_bytes = [], 0

    def remove_written(self) -> None:
        """Remove the oldest file, which has been written."""
        self._files_bytes -= self.files.popleft().size_bytes

    def take(self) -> PendingWalFile:
        """Take the oldest file out; its rows count until ``release``."""
        return self.files.popleft()

    def release(self, file: PendingWalFile) -> None:
        """Count the rows of a file no more that ``take`` returned: they are durable."""
        self._files_bytes -= file.size_bytes

    def _carry(self) -> None:
        log = self._table.log
        end = len(log)
        if self._start < end:
            self._carried.append(LogRange(log, self._start, end))
            self._start = end
            self._count_bytes()

    def _count_bytes(self) -> None:
        self._carried_bytes += self._table.size_bytes - self._start_bytes
        self._start_bytes = self._table.size_bytes
