"""Rows that are in a memtable and not in the WAL yet (docs/protocol.md 4.7).

The buffer holds no rows of its own: memtables log rows in the order of writing, and a WAL file is a stretch of that
log, perhaps over the seam between two memtables, with commits between that came as columns.
"""

from collections import deque
from dataclasses import dataclass
from typing import TypeAlias

from shale.engine.memtable import Memtable
from shale.engine.row_log import RowLog
from shale.kernels.rows import Rows, concat_rows


@dataclass(frozen=True, slots=True)
class LogStretch:
    """Rows ``[start, end)`` of a log; there are some."""

    log: RowLog
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start

    @property
    def first_seq(self) -> int:
        """The oldest seq in it."""
        return self.log.seqs[self.start]

    @property
    def last_seq(self) -> int:
        """The newest seq in it."""
        return self.log.seqs[self.end - 1]

    @property
    def first_create_ts(self) -> int:
        """Commit time of the oldest row, in milliseconds."""
        return self.log.create_ts[self.start]

    def rows(self) -> Rows:
        """Its rows by ascending seq, copied."""
        return self.log.rows(self.start, self.end)


@dataclass(frozen=True, slots=True)
class ColumnCommit:
    """The rows of one commit, by key, as the memtable holds them; there are some."""

    columns: Rows

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def first_seq(self) -> int:
        """The seq of all rows."""
        return int(self.columns.seq[0])

    @property
    def last_seq(self) -> int:
        """The same."""
        return self.first_seq

    @property
    def first_create_ts(self) -> int:
        """Their commit time in milliseconds."""
        return int(self.columns.create_ts[0])

    def rows(self) -> Rows:
        """The rows, not copied."""
        return self.columns


Stretch: TypeAlias = LogStretch | ColumnCommit


@dataclass(frozen=True, slots=True, kw_only=True)
class UnwrittenFile:
    """A WAL file to be: its id and rows are fixed."""

    id: int
    stretches: tuple[Stretch, ...]
    size_bytes: int

    @property
    def first_seq(self) -> int:
        """The oldest seq in it."""
        return self.stretches[0].first_seq

    @property
    def last_seq(self) -> int:
        """The newest seq in it."""
        return self.stretches[-1].last_seq

    @property
    def first_create_ts(self) -> int:
        """Commit time of the oldest row, in milliseconds."""
        return self.stretches[0].first_create_ts

    @property
    def row_count(self) -> int:
        """How many rows it has."""
        return sum(map(len, self.stretches))

    def rows(self) -> Rows:
        """Its rows by ascending seq; may run in a thread."""
        return concat_rows([stretch.rows() for stretch in self.stretches])


class WalBuffer:
    """What the WAL still lacks: files that are fixed, oldest first, and rows that belong to none yet."""

    __slots__ = ("_carried", "_carried_bytes", "_files_bytes", "_start", "_start_bytes", "_table", "files", "next_id")

    def __init__(self, next_id: int, table: Memtable) -> None:
        """Begin behind the rows that ``table`` has already: they came from the WAL."""
        self.files: deque[UnwrittenFile] = deque()
        self.next_id = next_id
        self._carried: list[Stretch] = []
        self._carried_bytes = 0
        self._files_bytes = 0
        self._table = table
        self._start = len(table.log)
        self._start_bytes = table.size_bytes

    @property
    def pending_bytes(self) -> int:
        """Estimated bytes of rows that belong to no file yet."""
        return self._carried_bytes + self._table.size_bytes - self._start_bytes

    @property
    def size_bytes(self) -> int:
        """Estimated bytes of everything that is not in the WAL."""
        return self._files_bytes + self.pending_bytes

    def follow(self, table: Memtable) -> None:
        """Take rows from a new memtable from now on; what the old one has not yet given is kept."""
        self._carry()
        self._table, self._start, self._start_bytes = table, len(table.log), table.size_bytes

    def append_columns(self, rows: Rows) -> None:
        """Add a commit to the memtable that is followed, behind its log."""
        self._carry()
        self._table.append_columns(rows)
        self._carried.append(ColumnCommit(rows))
        self._count_bytes()

    def freeze(self) -> None:
        """Bind all rows that belong to no file to the next id; without rows nothing happens."""
        self._carry()
        if self._carried:
            file = UnwrittenFile(id=self.next_id, stretches=tuple(self._carried), size_bytes=self._carried_bytes)
            self.files.append(file)
            self.next_id += 1
            self._files_bytes += file.size_bytes
            self._carried, self._carried_bytes = [], 0

    def written(self) -> None:
        """The oldest file is in the WAL."""
        self._files_bytes -= self.files.popleft().size_bytes

    def _carry(self) -> None:
        log = self._table.log
        end = len(log)
        if self._start < end:
            self._carried.append(LogStretch(log, self._start, end))
            self._start = end
            self._count_bytes()

    def _count_bytes(self) -> None:
        self._carried_bytes += self._table.size_bytes - self._start_bytes
        self._start_bytes = self._table.size_bytes
