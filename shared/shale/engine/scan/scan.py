"""A scan: an async iterator of rows over columns that become objects chunk by chunk."""

from collections.abc import AsyncIterator, Iterator, Mapping
from itertools import islice
from operator import length_hint
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from anyio.lowlevel import checkpoint

from shale.core.argument_types import require_at_least
from shale.core.async_use import AsyncRows
from shale.core.state_repr import ShowsState
from shale.engine.memtable.row_order import reversed_rows
from shale.engine.read.read_point import ReadPoint
from shale.engine.scan.chunk_reader import ScanChunkReader
from shale.engine.scan.plan import ScanPlan
from shale.engine.scan.row_objects import rows_to_items, rows_to_list
from shale.errors import InvalidRequestError
from shale.kernels.rows import EMPTY_ROWS, I64, Rows
from shale.sst.row_search import lower_bound
from shale.types import KeyRange, Row

if TYPE_CHECKING:
    from shale.engine.arrow.batches import RecordBatch, Table

T = TypeVar("T")
_ROWS_AT_ONCE = 1024
"""Rows that become objects in one step; more would not fit into the CPU's caches."""
_ROWS_WITHOUT_BREAK = 4096
"""Rows from memory after which other tasks run, where a call counts as some rows: about a millisecond."""
_ROWS_PER_CALL = 256
_BYTES_AS_A_ROW = 256
"""Bytes read from a file, which take as long as a row from memory."""
_ROWS_FIRST = 16
"""Rows that become objects at first: a caller who iterates may soon stop."""


class Scan(ShowsState, AsyncRows):
    """The rows of a range, iterated once: by row, or by ``batches``, ``columns`` or Arrow.

    It shows one state, whatever is flushed, compacted and collected meanwhile.  A scan that is dropped early leaks
    nothing.
    """

    __slots__ = (
        "_chunk",
        "_chunks",
        "_direct",
        "_end",
        "_from",
        "_last_key",
        "_reverse",
        "_rows",
        "_rows_ahead",
        "_start",
        "_without_break",
    )

    def __init__(self, point: ReadPoint, plan: ScanPlan) -> None:
        """Make no request.

        Args:
            point: the state to read.
            plan: which rows; its ``expected_rows`` is the limit, and ``max_seq`` comes from the point.
        """
        self._reverse = plan.reverse
        self._chunks = ScanChunkReader(point, plan)
        # Rows ``[_start, _end)`` of the current chunk, which ascends in both directions, are not objects yet.
        self._chunk: Rows = EMPTY_ROWS
        self._start = self._end = 0
        self._rows: Iterator[Row] = iter(())
        self._direct: list[Any] = []
        """The objects that came from memory last, without columns; those left in ``_rows`` are not given yet."""
        self._rows_ahead = _ROWS_FIRST
        self._without_break = 0
        """Rows from memory since other tasks could run."""
        self._from = 0
        """The row of the chunk where reading began, after the fetch or after a seek."""
        self._last_key: bytes | None = None
        """The last key returned before that row."""

    @property
    def read_range(self) -> KeyRange:
        """The key range this scan has observed, including gaps.

        It is the whole range, however many rows were taken.  If the limit ended the scan, it ends at the last row.
        """
        return self._chunks.read_range

    def __reduce__(self) -> Any:
        raise TypeError("a scan belongs to its process and cannot be pickled: pickle a DbReader, and scan there")

    def _shown_state(self) -> Mapping[str, object]:
        return {"range": str(self._chunks.read_range), "reverse": self._reverse, "last_key": self._last_given()}

    def __aiter__(self) -> "Scan":
        return self

    async def __anext__(self) -> Row:
        for row in self._rows:
            return row
        ahead = self._rows_ahead
        self._rows = iter(await self._next_rows(ahead))
        self._rows_ahead = min(4 * ahead, _ROWS_AT_ONCE)
        for row in self._rows:
            return row
        raise StopAsyncIteration

    async def batches(self, size: int) -> AsyncIterator[list[Row]]:
        """Yield lists of ``size`` rows; the last may be shorter.

        Raises:
            InvalidRequestError: ``size`` is not positive.
        """
        require_at_least("size", size, 1)
        while batch := await self.next_batch(size):
            yield batch

    async def next_batch(self, size: int, *, bytes_max: int | None = None) -> list[Row]:
        """Return the next ``size`` rows, fewer at the end, then none.

        Args:
            size: rows at most.
            bytes_max: stop once the rows have this many bytes, so that a scan of large values holds few of them.
        """
        require_at_least("size", size, 0)
        batch = list(islice(self._rows, size))
        if bytes_max is None:
            while len(batch) < size and (rows := await self._next_rows(size - len(batch))):
                batch += rows
                self._give_direct()
            return batch
        left = bytes_max - _size_bytes(batch)
        while len(batch) < size and left > 0 and (rows := await self._next_rows(size - len(batch), left)):
            batch += rows
            self._give_direct()
            left -= _size_bytes(rows)
        return batch

    async def items(self, size: int) -> AsyncIterator[list[tuple[bytes, bytes]]]:
        """Yield keys and values in lists of ``size``; the last may be shorter.  Several times as fast as rows.

        Raises:
            InvalidRequestError: ``size`` is not positive.
        """
        require_at_least("size", size, 1)
        self._return_row_objects()
        items: list[tuple[bytes, bytes]] = []
        while rows := await self._next_items(size - len(items)):
            self._give_direct()
            if items:
                items += rows
            else:
                items = rows
            if len(items) == size:
                yield items
                items = []
        if items:
            yield items

    async def columns(self) -> Rows | None:
        """Return the next rows as columns, all of them values; ``None`` at the end.

        After an error, or after the caller was cancelled while it waited, the scan is broken: every later call raises.
        """
        self._return_row_objects()
        if self._start == self._end and not await self._next_chunk():
            return None
        rows = self._chunk.slice(self._start, self._end)
        self._finish_chunk()
        return reversed_rows(rows) if self._reverse else rows

    async def arrow_batches(self) -> "AsyncIterator[RecordBatch]":
        """Yield the remaining rows as ``pyarrow.RecordBatch``es that share the memory of the rows.

        ``key`` and ``value`` are binary, ``seq`` is uint64, ``create_ts`` and ``expire_ts`` are timestamp[ms, UTC],
        null for a row without one.

        Raises:
            InvalidRequestError: pyarrow is not installed.
        """
        from shale.engine.arrow.batches import rows_to_batches

        self._chunks.expect_full_read()
        while (rows := await self.columns()) is not None:
            for batch in rows_to_batches(rows):
                yield batch

    async def to_arrow(self) -> "Table":
        """Return the remaining rows as one ``pyarrow.Table``; see ``arrow_batches``."""
        from shale.engine.arrow.batches import batches_to_table

        return batches_to_table([batch async for batch in self.arrow_batches()])

    async def seek(self, key: bytes) -> None:
        """Go on at the first row at or after ``key``; in a reversed scan, at or before it.

        Raises:
            InvalidRequestError: the key lies outside the range of the scan, or not after the last row; the scan can
                still go on.
        """
        self._chunks.check()
        self._return_row_objects()
        if not self._chunks.key_range.contains(key):
            raise InvalidRequestError("cannot seek to a key outside the range of the scan")
        given = self._last_given()
        if given is not None and (key >= given if self._reverse else key <= given):
            raise InvalidRequestError("cannot seek to a key that is not after the last row")
        unread = self._end - self._start
        if self._reverse:
            self._end = self._from = max(self._start, min(self._end, lower_bound(self._chunk, key + b"\0")))
        else:
            self._start = self._from = min(self._end, max(self._start, lower_bound(self._chunk, key)))
        self._last_key, self._direct, self._rows_ahead = given, [], _ROWS_FIRST
        self._chunks.return_rows(unread - (self._end - self._start))
        if self._start == self._end:
            self._chunks.skip_to(key)

    def release(self) -> None:
        """Give up what was read ahead, as the caller takes nothing for some time; later calls read it again."""
        self._return_row_objects()
        given = self._last_given()
        if given is None or self._chunks.is_over:
            return
        self._chunks.take_back(given, self._end - self._start)
        self._chunks.release()
        self._chunk, self._start, self._end, self._from = EMPTY_ROWS, 0, 0, 0
        self._last_key, self._direct = given, []

    def close(self) -> None:
        """Release everything; there are no more rows.  Dropping the scan does the same."""
        self._chunks.close()
        self._rows = iter(())
        self._finish_chunk()

    async def _next_rows(self, rows_max: int, bytes_max: int | None = None) -> list[Row]:
        """Return some rows as objects; none at the end."""
        rows = None
        if self._start == self._end:
            await self._let_others_run()
            rows_max = min(rows_max, _ROWS_AT_ONCE)
            rows = self._chunks.take_objects(rows_max, bytes_max)
            if rows is None:
                rows = await self._chunks.load_objects(rows_max, bytes_max)
            self._note_direct(rows)
        if rows is None:
            rows = self._in_order(rows_to_list(await self._next_slice(rows_max, bytes_max)))
        return rows

    async def _next_items(self, rows_max: int) -> list[tuple[bytes, bytes]]:
        """Return keys and values of some rows; none at the end."""
        items = None
        if self._start == self._end:
            await self._let_others_run()
            rows_max = min(rows_max, _ROWS_AT_ONCE)
            items = self._chunks.take_objects(rows_max, as_pairs=True)
            if items is None:
                items = await self._chunks.load_objects(rows_max, as_pairs=True)
            self._note_direct(items)
        if items is None:
            items = self._in_order(rows_to_items(await self._next_slice(rows_max)))
        return items

    def _note_direct(self, rows: list[Any] | None) -> None:
        """Remember objects that came without columns."""
        if rows:
            self._last_key = self._last_given()
            self._direct = rows
            self._without_break += len(rows) + _ROWS_PER_CALL + self._chunks.bytes_read // _BYTES_AS_A_ROW

    def _give_direct(self) -> None:
        """Forget objects of which all are given: the caller may change their list."""
        if self._direct:
            self._last_key, self._direct = self._last_given(), []
            self._from = self._start

    async def _let_others_run(self) -> None:
        """Suspend from time to time, which rows from memory do not.  It comes before rows are taken: no row is lost."""
        if self._without_break >= _ROWS_WITHOUT_BREAK:
            self._without_break = 0
            await checkpoint()

    async def _next_slice(self, rows_max: int, bytes_max: int | None = None) -> Rows:
        """Return some rows, ascending; none at the end."""
        if self._start == self._end and not await self._next_chunk():
            return EMPTY_ROWS
        count = min(rows_max, _ROWS_AT_ONCE, self._end - self._start)
        reverse = self._reverse
        first = self._end - count if reverse else self._start
        if bytes_max is not None:
            first, count = _trim_to_bytes(self._chunk.val_offsets, first, count, bytes_max, reverse=reverse)
        if reverse:
            self._end = first
        else:
            self._start = first + count
        return self._chunk.slice(first, first + count)

    def _in_order(self, rows: list[T]) -> list[T]:
        return rows[::-1] if self._reverse else rows

    async def _next_chunk(self) -> bool:
        """Read the next chunk and return whether there was one."""
        # All rows of the last one were given.  The next one may wait for memory, and the last may hold a large value.
        self._last_key, self._direct = self._last_given(), []
        self._chunk, self._start, self._end, self._from = EMPTY_ROWS, 0, 0, 0
        rows = await self._chunks.next()
        if rows is None:
            return False
        self._chunk, self._start, self._end = rows, 0, len(rows)
        self._from = len(rows) if self._reverse else 0
        return True

    def _return_row_objects(self) -> None:
        """Turn rows that became objects and were not returned back into columns."""
        count = length_hint(self._rows)
        if count and self._direct:
            given = self._direct[: len(self._direct) - count]
            self._chunks.take_back(given[-1][0], count)
            self._direct, self._rows = given, iter(())
            return
        self._rows = iter(())
        if self._reverse:
            self._end += count
        else:
            self._start -= count

    def _last_given(self) -> bytes | None:
        """Return the key of the last row that the caller got."""
        given = len(self._direct) - length_hint(self._rows)
        if given > 0:
            key: bytes = self._direct[given - 1][0]
            return key
        if self._reverse:
            return self._chunk.key(self._end) if self._end < self._from else self._last_key
        return self._chunk.key(self._start - 1) if self._start > self._from else self._last_key

    def _finish_chunk(self) -> None:
        """Mark all of the chunk as returned."""
        if self._reverse:
            self._end = self._start
        else:
            self._start = self._end


def _trim_to_bytes(offsets: I64, first: int, count: int, bytes_max: int, *, reverse: bool) -> tuple[int, int]:
    """Trim rows ``[first, first + count)`` to ``bytes_max`` value bytes; keep at least one row.

    Reading begins at ``first``, or at the other end if it is reversed.  Return the first row and the count.
    """
    end = first + count
    if int(offsets[end] - offsets[first]) <= bytes_max:
        return first, count
    if reverse:
        begin = int(np.searchsorted(offsets[first:end], offsets[end] - bytes_max, "left")) + first
        begin = min(begin, end - 1)
        return begin, end - begin
    fitting = int(np.searchsorted(offsets[first + 1 : end + 1], offsets[first] + bytes_max, "right"))
    return first, max(fitting, 1)


def _size_bytes(rows: list[Row]) -> int:
    return sum([len(row.key) + len(row.value) for row in rows])
