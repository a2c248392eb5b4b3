"""Resumes an interrupted compaction after its last row (docs/reference/protocol.md 6.11 step 4)."""

from typing import TYPE_CHECKING

from shale.iter.source import RowSource
from shale.kernels.rows import Rows, entries_from_rows
from shale.types import FLAG_EXPIRE_TS, Entry

if TYPE_CHECKING:
    from collections.abc import Callable


class ResumeSource:
    """A processed stream without the rows that an earlier attempt has written, up to and including ``last``.

    Another worker may cut between two versions of a key, and may fold merge operands that this worker keeps.  So the
    source also skips rows after ``last`` that the earlier attempt would not have written: rows below a value that no
    snapshot separates from it, and operands folded into ``last``.  It skips smaller keys too, so the caller need not
    seek its sources.

    Args:
        source: all rows of the range, or those from the key of ``last`` on.
        last: the last row of the last output.
        barrier: ``retention_min_seq`` of the job.
    """

    def __init__(self, source: RowSource, last: Entry, barrier: int) -> None:
        self._source = source
        self._last = last
        self._is_below_barrier = last.seq <= barrier
        self._is_past_last = False
        """Whether the row after ``last`` has been reached."""
        self._is_contained: Callable[[Entry], bool] | None = None
        """Decides for each row after ``last`` whether ``last`` includes it."""

    async def next(self) -> Rows | None:
        """See ``RowSource``."""
        while (rows := await self._source.next()) is not None:
            if self._is_past_last and self._is_contained is None:
                return rows
            start = 0 if self._is_past_last else self._first_after(rows)
            while start < len(rows):
                self._is_past_last = True
                if self._is_contained is None:
                    return rows.slice(start, len(rows))
                if not self._is_contained(_entry(rows, start)):
                    self._is_contained = None
                else:
                    start += 1
        return None

    def _first_after(self, rows: Rows) -> int:
        low, high = 0, len(rows)
        while low < high:
            middle = (low + high) // 2
            key = rows.key(middle)
            if key < self._last.key or (key == self._last.key and int(rows.seq[middle]) >= self._last.seq):
                low = middle + 1
            else:
                high = middle
        if self._is_below_barrier:
            self._compare_with_last(rows, low - 1)
        return low

    def _compare_with_last(self, rows: Rows, place: int) -> None:
        """Compare ``last`` with the same row of this stream, at ``place`` if it still exists."""
        last = self._last
        if not last.is_merge:
            self._is_contained = self._has_same_key
        elif place >= 0:
            same = _entry(rows, place)
            if (same.key, same.seq) == (last.key, last.seq) and same.value != last.value:
                self._is_contained = self._is_folded

    def _has_same_key(self, row: Entry) -> bool:
        return row.key == self._last.key

    def _is_folded(self, row: Entry) -> bool:
        """Return whether an operand was folded into ``last``: it expires at the same time."""
        last = self._last
        same_expiry = (row.flags ^ last.flags) & FLAG_EXPIRE_TS == 0 and row.expire_ts == last.expire_ts
        return row.key == last.key and row.is_merge and same_expiry


def _entry(rows: Rows, place: int) -> Entry:
    (entry,) = entries_from_rows(rows.slice(place, place + 1))
    return entry
