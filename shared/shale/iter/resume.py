"""Goes on where an interrupted compaction stopped (docs/protocol.md 6.11 step 4)."""

from shale.iter.source import RowSource
from shale.kernels.rows import Rows


class SkipThrough:
    """A processed stream without its rows up to and including the version ``seq`` of ``key``.

    The last row of the last output SST says both, so a key's versions may span two SSTs.  Keys below ``key`` are
    skipped too, so the caller may seek its sources or not.
    """

    def __init__(self, source: RowSource, key: bytes, seq: int) -> None:
        self._source = source
        self._key = key
        self._seq = seq
        self._found = False

    async def next(self) -> Rows | None:
        """See ``RowSource``."""
        while (rows := await self._source.next()) is not None:
            if self._found:
                return rows
            start = self._first_after(rows)
            if start < len(rows):
                self._found = True
                return rows.slice(start, len(rows))
        return None

    def _first_after(self, rows: Rows) -> int:
        low, high = 0, len(rows)
        while low < high:
            middle = (low + high) // 2
            key = rows.key(middle)
            if key < self._key or (key == self._key and int(rows.seq[middle]) >= self._seq):
                low = middle + 1
            else:
                high = middle
        return low
