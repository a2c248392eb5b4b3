"""Sorted columns of a memtable's log, made when a scan needs them."""

from functools import partial
from itertools import accumulate

from shale.engine.memtable.row_log import RowLog
from shale.engine.memtable.sorted_part import SortedPart
from shale.env import Cpu
from shale.kernels.rows import Rows

INLINE_ROWS_MAX = 4096
"""More rows are sorted in a thread."""
_ROUNDS_MAX = 4
"""A writer that is faster than the sorting must not keep a scan waiting."""


class SortedLog:
    """Sorted parts of a growing log.

    Parts halve in size, like the runs of an LSM tree: a row is sorted O(log n) times, and a scan after one write sorts
    one row.
    """

    __slots__ = ("_log", "_parts", "_sorted_count")

    def __init__(self, log: RowLog) -> None:
        self._log = log
        self._parts: list[SortedPart] = []
        self._sorted_count = 0

    @property
    def has_long_tail(self) -> bool:
        """Whether a scan should wait for ``prepare`` because ``parts`` would sort or merge many rows."""
        count = len(self._log)
        if count <= INLINE_ROWS_MAX or count == self._sorted_count:
            return False
        return count - self._merge_from(count) > INLINE_ROWS_MAX

    def parts(self) -> list[SortedPart]:
        """Return all rows of the log in sorted parts."""
        count = len(self._log)
        if self._sorted_count < count:
            start = self._merge_from(count)
            self._replace_from(start, count, self._log.sorted_rows(start, count))
        return self._parts

    async def prepare(self, cpu: Cpu) -> None:
        """Sort most of what is unsorted without blocking the loop; ``parts`` does the rest.

        Rows that come meanwhile may be many, too.
        """
        for _ in range(_ROUNDS_MAX):
            if not self.has_long_tail:
                break
            count = len(self._log)
            start = self._merge_from(count)
            rows = await cpu.run(partial(self._log.sorted_rows, start, count))
            if self._sorted_count < count and start in self._part_ends():
                self._replace_from(start, count, rows)

    def _merge_from(self, count: int) -> int:
        """Return the place where the last part begins once rows up to ``count`` are sorted."""
        start = self._sorted_count
        for part in reversed(self._parts):
            if len(part) > 2 * (count - start):
                break
            start -= len(part)
        return start

    def _part_ends(self) -> list[int]:
        return list(accumulate(map(len, self._parts), initial=0))

    def _replace_from(self, start: int, count: int, rows: Rows) -> None:
        del self._parts[self._part_ends().index(start) :]
        self._parts.append(SortedPart(rows))
        self._sorted_count = count
