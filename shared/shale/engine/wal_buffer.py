"""Rows that are in a memtable and not in the WAL yet (docs/protocol.md 4.7).

The buffer holds no rows of its own: memtables log rows in the order of writing, and a WAL file is a stretch of that
log, perhaps over the seam between two memtables.
"""

from collections import deque
from dataclasses import dataclass

from shale.engine.memtable import Memtable
from shale.engine.row_log import RowLog
from shale.kernels.rows import Rows, concat_rows


@dataclass(frozen=True, slots=True)
class Stretch:
    """Rows ``[start, end)`` of a log."""

    log: RowLog
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnwrittenFile:
    """A WAL file to be: its id and rows are fixed."""

    id: int
    stretches: tuple[Stretch, ...]
    size_bytes: int

    @property
    def first_seq(self) -> int:
        """The oldest seq in it."""
        stretch = self.stretches[0]
        return stretch.log.seqs[stretch.start]

    @property
    def last_seq(self) -> int:
        """The newest seq in it."""
        stretch = self.stretches[-1]
        return stretch.log.seqs[stretch.end - 1]

    @property
    def first_create_ts(self) -> int:
        """Commit time of the oldest row, in milliseconds."""
        stretch = self.stretches[0]
        return stretch.log.create_ts[stretch.start]

    @property
    def row_count(self) -> int:
        """How many rows it has."""
        return sum(stretch.end - stretch.start for stretch in self.stretches)

    def rows(self) -> Rows:
        """Its rows by ascending seq; may run in a thread."""
        return concat_rows([stretch.log.rows(stretch.start, stretch.end) for stretch in self.stretches])


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
            self._carried.append(Stretch(log, self._start, end))
            self._carried_bytes += self._table.size_bytes - self._start_bytes
            self._start, self._start_bytes = end, self._table.size_bytes
