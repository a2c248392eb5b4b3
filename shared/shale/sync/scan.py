"""Blocking scans: rows are fetched in batches, because a trip to the loop's thread costs as much as many rows."""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

from shale.core.async_use import BlockingIterator
from shale.core.bytes_like import BytesLike
from shale.core.state_repr import ShowsState
from shale.engine.scan import scan
from shale.engine.scan.recency import RecencyScan
from shale.errors import InvalidRequestError
from shale.kernels.rows import Rows, rows_from_entries
from shale.sync.loop_thread import LoopThread
from shale.types import FLAG_CREATE_TS, FLAG_EXPIRE_TS, Entry, KeyRange, Row

if TYPE_CHECKING:
    from shale.engine.arrow.batches import RecordBatch, Table

_FIRST_FETCH = 64
"""Rows of the first trip: small, so that a caller who wants few rows does not wait for thousands."""
_FETCH_MAX = 2048


class Scan(ShowsState, BlockingIterator):
    """The rows of a range, iterated once; see ``shale.engine.scan.Scan``.  Rows are fetched ahead of the caller."""

    def __init__(self, inner: scan.Scan, loop_thread: LoopThread, *, backward: bool) -> None:
        self._inner = inner
        self._loop = loop_thread
        self._backward = backward
        self._fetched: list[Row] = []
        self._given = 0
        """Rows of ``_fetched`` that the caller has."""
        self._before: bytes | None = None
        """The last key that was given before these."""
        self._sought: bytes | None = None
        self._fetch = _FIRST_FETCH

    def __reduce__(self) -> Any:
        raise TypeError("a scan belongs to its process and cannot be pickled: pickle a DbReader, and scan there")

    def _shown_state(self) -> Mapping[str, object]:
        fetched = len(self._fetched) - self._given
        return {
            "range": self._inner.read_range,
            "reverse": self._backward,
            "last_key": self._last_given(),
            "fetched": fetched,
        }

    def _shown_class(self) -> str:
        return "shale.sync.Scan"

    def __iter__(self) -> Iterator[Row]:
        return self

    def __next__(self) -> Row:
        if self._given == len(self._fetched):
            self._fetch_more()
            if not self._fetched:
                raise StopIteration
        row = self._fetched[self._given]
        self._given += 1
        return row

    def batches(self, size: int) -> Iterator[list[Row]]:
        """Yield lists of ``size`` rows; the last may be shorter.

        Raises:
            InvalidRequestError: ``size`` is not positive.
        """
        if size < 1:
            raise InvalidRequestError(f"batches of {size} rows: must be at least 1")
        while batch := self.next_batch(size):
            yield batch

    @property
    def read_range(self) -> KeyRange:
        """The key range that was read, including gaps; it may be ahead of the rows that the caller has."""
        return self._inner.read_range

    def items(self, size: int) -> Iterator[list[tuple[bytes, bytes]]]:
        """Yield keys and values in lists of ``size``; the last may be shorter.  Several times as fast as rows.

        Raises:
            InvalidRequestError: ``size`` is not positive.
        """
        if size < 1:
            raise InvalidRequestError(f"lists of {size} items: must be at least 1")
        items = [(row.key, row.value) for row in self._fetched[self._given :]]
        self._given = len(self._fetched)
        more = self._inner.items(size)
        while True:
            while len(items) < size and (found := self._loop.call(_next_items(more))):
                self._remember([])
                self._before = found[-1][0]
                items += found
            if not items:
                return
            yield items[:size]
            items = items[size:]

    def next_batch(self, size: int, *, bytes_max: int | None = None) -> list[Row]:
        """Return the next ``size`` rows, fewer at the end, and then none; see ``shale.engine.scan.Scan.next_batch``."""
        left = self._fetched[self._given : self._given + size]
        batch = left if bytes_max is None else list(_up_to(left, bytes_max))
        self._given += len(batch)
        bytes_left = None if bytes_max is None else bytes_max - sum(len(row.key) + len(row.value) for row in batch)
        if len(batch) < size and (bytes_left is None or bytes_left > 0):
            more = self._loop.call(self._inner.next_batch(size - len(batch), bytes_max=bytes_left))
            self._remember(more)
            self._given = len(more)
            batch += more
        return batch

    def columns(self) -> Rows | None:
        """Return the next rows as columns, all of them values; ``None`` at the end."""
        left = self._fetched[self._given :]
        self._given = len(self._fetched)
        if left:
            return rows_from_entries([_entry_of(row) for row in left])
        rows = self._loop.call(self._inner.columns())
        if rows is not None:
            self._remember([])
            self._before = rows.key(len(rows) - 1)
        return rows

    def arrow_batches(self) -> "Iterator[RecordBatch]":
        """Yield the rest as ``pyarrow.RecordBatch``es; see ``shale.engine.scan.Scan.arrow_batches``.

        Raises:
            InvalidRequestError: pyarrow is not installed.
        """
        from shale.engine.arrow.batches import rows_to_batches

        while (rows := self.columns()) is not None:
            yield from rows_to_batches(rows)

    def to_arrow(self) -> "Table":
        """Return the rest as one ``pyarrow.Table``; see ``arrow_batches``."""
        from shale.engine.arrow.batches import batches_to_table

        return batches_to_table(list(self.arrow_batches()))

    def seek(self, key: BytesLike) -> None:
        """Continue at the first row with ``key`` or a later key; in a reverse scan, with ``key`` or an earlier one.

        Raises:
            InvalidRequestError: the key lies outside the range of the scan, or not after the last row that was
                received; the scan can go on all the same.
        """
        key = bytes(key)
        is_ahead = self._is_ahead(key)
        if is_ahead and self._sought is not None and not self._lies_before(self._sought, key):
            return  # the scan has already skipped these rows, and cannot go back
        left = self._fetched[self._given :]
        if left and is_ahead and not self._lies_before(left[-1].key, key):
            self._given += sum(self._lies_before(row.key, key) for row in left)
        else:
            # After everything that was fetched; an invalid key raises here.
            self._loop.call(self._inner.seek(key))
            self._before = self._last_given()
            self._fetched, self._given = [], 0
            self._fetch = _FIRST_FETCH
        self._sought = key

    def release(self) -> None:
        """Give up what the engine has read ahead, as the caller takes nothing for some time."""
        self._loop.call_function(self._inner.release)

    def close(self) -> None:
        """Release everything; there are no more rows."""
        self._fetched, self._given = [], 0
        self._loop.call_function(self._inner.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # The last reference may go in any thread; the engine's scan must be closed in the loop's thread.
        self._loop.post(self._inner.close)

    def _fetch_more(self) -> None:
        self._remember(self._loop.call(self._inner.next_batch(self._fetch)))
        self._fetch = min(2 * self._fetch, _FETCH_MAX)

    def _remember(self, rows: list[Row]) -> None:
        """Replace the fetched rows, all of which were received, by the next ones."""
        self._before = self._last_given()
        self._fetched, self._given = rows, 0

    def _last_given(self) -> bytes | None:
        return self._fetched[self._given - 1].key if self._given else self._before

    def _is_ahead(self, key: bytes) -> bool:
        last = self._last_given()
        return self._inner.read_range.contains(key) if last is None else self._lies_before(last, key)

    def _lies_before(self, key: bytes, other: bytes) -> bool:
        return key > other if self._backward else key < other


async def _next_items(lists: AsyncIterator[list[tuple[bytes, bytes]]]) -> list[tuple[bytes, bytes]]:
    return await anext(lists, [])


def _up_to(rows: Iterable[Row], bytes_max: int) -> Iterator[Row]:
    """Yield rows until they have so many bytes."""
    for row in rows:
        if bytes_max <= 0:
            return
        yield row
        bytes_max -= len(row.key) + len(row.value)


def recent_rows(inner: RecencyScan, loop_thread: LoopThread) -> Iterator[Entry]:
    """Yield the rows of a scan by recency; see ``shale.engine.scan.recency``.  Few are fetched at first."""
    size = _FIRST_FETCH
    while batch := loop_thread.call(inner.next_batch(size)):
        yield from batch
        size = min(2 * size, _FETCH_MAX)


def _entry_of(row: Row) -> Entry:
    flags, create_ts, expire_ts = 0, 0, 0
    if row.create_ts is not None:
        flags, create_ts = FLAG_CREATE_TS, row.create_ts
    if row.expire_ts is not None:
        flags, expire_ts = flags | FLAG_EXPIRE_TS, row.expire_ts
    return Entry(row.key, row.value, row.seq, flags, create_ts, expire_ts)
