"""Scans: an async iterator of rows, made of columns that become objects chunk by chunk."""

from collections.abc import AsyncIterator, Iterator
from itertools import islice
from operator import length_hint
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from shale.engine.row_objects import rows_to_items, rows_to_list
from shale.engine.row_order import reversed_rows
from shale.engine.scan_chunks import ScanChunks
from shale.engine.scan_sources import ScanPlan
from shale.errors import InvalidRequestError
from shale.kernels.rows import EMPTY_ROWS, I64, Rows
from shale.sst.row_search import lower_bound
from shale.types import KeyRange, Row

if TYPE_CHECKING:
    from shale.engine.read_point import ReadPoint

T = TypeVar("T")
_ROWS_AT_ONCE = 1024
"""Rows that become objects together: more of them push each other out of the CPU's caches."""


class Scan:
    """The rows of a range, iterated once: by row, or by ``batches``, ``columns`` or Arrow; leaving early leaks nothing.

    It shows one state, whatever is flushed, compacted and collected meanwhile: see ``ScanChunks``.
    """

    __slots__ = (
        "_backward",
        "_chunk",
        "_chunks",
        "_end",
        "_from",
        "_last_key",
        "_rows",
        "_start",
    )

    def __init__(
        self,
        point: "ReadPoint",
        key_range: KeyRange,
        *,
        prefix: bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
        now_ms: int | None = None,
        read_ahead_bytes: int | None = None,
        cache_blocks: bool = True,
    ) -> None:
        """Make no request.

        Args:
            point: what to read.
            key_range: which keys.
            prefix: all keys in the range begin with it.
            reverse: from the greatest key down.
            limit: rows at most.
            now_ms: rows that have expired by then are invisible; ``None``: they are shown.
            read_ahead_bytes: of one request; ``None``: what the handle says.
            cache_blocks: whether short reads go into the cache.
        """
        plan = ScanPlan(
            key_range=key_range,
            prefix=prefix,
            backward=reverse,
            rows_wanted=limit,
            now_ms=now_ms,
            read_ahead_bytes=read_ahead_bytes,
            cache_blocks=cache_blocks,
        )
        self._backward = reverse
        self._chunks = ScanChunks(point, plan)
        # Of the chunk at hand, which ascends in both directions, rows ``[_start, _end)`` are no objects yet.
        self._chunk: Rows = EMPTY_ROWS
        self._start = self._end = 0
        self._rows: Iterator[Row] = iter(())
        self._from = 0
        """Where in the chunk reading began, after it was fetched or after a seek."""
        self._last_key: bytes | None = None
        """The last one that was given before that."""

    @property
    def read_range(self) -> KeyRange:
        """The keys of which the rows that were read say something, be it that there is no row.

        All of the range, whatever was taken of it; once the limit has ended the scan, what does not lie behind it.
        """
        return self._chunks.read_range

    def __reduce__(self) -> Any:
        raise TypeError("a scan belongs to its process and cannot be pickled: pickle a DbReader, and scan there")

    def __aiter__(self) -> "Scan":
        return self

    async def __anext__(self) -> Row:
        for row in self._rows:
            return row
        self._rows = iter(await self._next_rows(_ROWS_AT_ONCE))
        for row in self._rows:
            return row
        raise StopAsyncIteration

    async def batches(self, size: int) -> AsyncIterator[list[Row]]:
        """Lists of ``size`` rows; the last may be shorter.

        Raises:
            InvalidRequestError: ``size`` is not positive.
        """
        if size < 1:
            raise InvalidRequestError(f"batches of {size} rows: must be at least 1")
        while batch := await self.next_batch(size):
            yield batch

    async def next_batch(self, size: int, *, bytes_max: int | None = None) -> list[Row]:
        """The next ``size`` rows, fewer at the end, and then none.

        Args:
            size: rows at most.
            bytes_max: nothing is added to rows that have so many bytes, so that a scan of large values holds few
                of them at a time.
        """
        batch = list(islice(self._rows, size))
        if bytes_max is None:
            while len(batch) < size and (rows := await self._next_rows(size - len(batch))):
                batch += rows
            return batch
        left = bytes_max - _size_bytes(batch)
        while len(batch) < size and left > 0 and (rows := await self._next_rows(size - len(batch), left)):
            batch += rows
            left -= _size_bytes(rows)
        return batch

    async def items(self, size: int) -> AsyncIterator[list[tuple[bytes, bytes]]]:
        """Keys and values in lists of ``size``, the last perhaps shorter: several times as fast as whole rows.

        Raises:
            InvalidRequestError: ``size`` is not positive.
        """
        if size < 1:
            raise InvalidRequestError(f"lists of {size} items: must be at least 1")
        self._unmake_rows()
        items: list[tuple[bytes, bytes]] = []
        while rows := self._in_order(rows_to_items(await self._next_slice(size - len(items)))):
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
        """The next rows as columns, all of them values; ``None`` at the end.

        After an error, or when the caller was cancelled while it waited, a scan cannot go on: what was being read is
        lost.  Every later call raises.
        """
        self._unmake_rows()
        if self._start == self._end and not await self._next_chunk():
            return None
        rows = self._chunk.slice(self._start, self._end)
        self._pass_chunk()
        return reversed_rows(rows) if self._backward else rows

    async def arrow_batches(self) -> AsyncIterator[Any]:
        """The rest as ``pyarrow.RecordBatch``es, whose columns share the memory of what was read.

        ``key`` and ``value`` are binary, ``seq`` is uint64, ``create_ts`` and ``expire_ts`` are timestamp[ms, UTC] and
        null where a row has none.

        Raises:
            InvalidRequestError: pyarrow is not installed.
        """
        from shale.engine.arrow import rows_to_batches

        self._chunks.take_whole()
        while (rows := await self.columns()) is not None:
            for batch in rows_to_batches(rows):
                yield batch

    async def to_arrow(self) -> Any:
        """The rest as one ``pyarrow.Table``; see ``arrow_batches``."""
        from shale.engine.arrow import batches_to_table

        return batches_to_table([batch async for batch in self.arrow_batches()])

    async def seek(self, key: bytes) -> None:
        """Go on at the first row with ``key`` or a key behind it; going backward, ``key`` or one before it.

        Raises:
            InvalidRequestError: the key lies outside the range of the scan, or not behind the last row that was given;
                the scan can go on all the same.
        """
        self._chunks.check()
        self._unmake_rows()
        if not self._chunks.key_range.contains(key):
            raise InvalidRequestError("cannot seek to a key outside the range of the scan")
        given = self._last_given()
        if given is not None and (key >= given if self._backward else key <= given):
            raise InvalidRequestError("cannot seek to a key that is not behind the last row")
        unread = self._end - self._start
        if self._backward:
            self._end = self._from = max(self._start, min(self._end, lower_bound(self._chunk, key + b"\0")))
        else:
            self._start = self._from = min(self._end, max(self._start, lower_bound(self._chunk, key)))
        self._last_key = given
        self._chunks.give_back(unread - (self._end - self._start))
        if self._start == self._end:
            self._chunks.go_on_at(key)

    def close(self) -> None:
        """Let go of everything; there are no more rows.  Dropping the scan does the same."""
        self._chunks.close()
        self._rows = iter(())
        self._pass_chunk()

    async def _next_rows(self, rows_max: int, bytes_max: int | None = None) -> list[Row]:
        """Some rows as objects; none at the end."""
        return self._in_order(rows_to_list(await self._next_slice(rows_max, bytes_max)))

    async def _next_slice(self, rows_max: int, bytes_max: int | None = None) -> Rows:
        """Some rows, ascending; none at the end."""
        if self._start == self._end and not await self._next_chunk():
            return EMPTY_ROWS
        count = min(rows_max, _ROWS_AT_ONCE, self._end - self._start)
        backward = self._backward
        first = self._end - count if backward else self._start
        if bytes_max is not None:
            first, count = _shorter(self._chunk.val_offsets, first, count, bytes_max, backward=backward)
        if backward:
            self._end = first
        else:
            self._start = first + count
        return self._chunk.slice(first, first + count)

    def _in_order(self, rows: list[T]) -> list[T]:
        return rows[::-1] if self._backward else rows

    async def _next_chunk(self) -> bool:
        """Read on; false at the end."""
        rows = await self._chunks.next()
        if rows is None:
            return False
        self._last_key = self._last_given()
        self._chunk, self._start, self._end = rows, 0, len(rows)
        self._from = len(rows) if self._backward else 0
        return True

    def _unmake_rows(self) -> None:
        """Rows that became objects and were not given are columns again."""
        count = length_hint(self._rows)
        self._rows = iter(())
        if self._backward:
            self._end += count
        else:
            self._start -= count

    def _last_given(self) -> bytes | None:
        """The key of the last row that the caller got."""
        if self._backward:
            return self._chunk.key(self._end) if self._end < self._from else self._last_key
        return self._chunk.key(self._start - 1) if self._start > self._from else self._last_key

    def _pass_chunk(self) -> None:
        """All of the chunk was given."""
        if self._backward:
            self._end = self._start
        else:
            self._start = self._end


def _shorter(offsets: I64, first: int, count: int, bytes_max: int, *, backward: bool) -> tuple[int, int]:
    """As many of ``count`` rows, from the end where reading begins, as have ``bytes_max`` of values, but one."""
    behind = first + count
    if int(offsets[behind] - offsets[first]) <= bytes_max:
        return first, count
    if backward:
        begin = int(np.searchsorted(offsets[first:behind], offsets[behind] - bytes_max, "left")) + first
        begin = min(begin, behind - 1)
        return begin, behind - begin
    fitting = int(np.searchsorted(offsets[first + 1 : behind + 1], offsets[first] + bytes_max, "right"))
    return first, max(fitting, 1)


def _size_bytes(rows: list[Row]) -> int:
    return sum([len(row.key) + len(row.value) for row in rows])
