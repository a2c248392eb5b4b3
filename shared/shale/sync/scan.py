"""Blocking scans: rows are fetched in batches, because a trip to the loop's thread costs as much as many rows."""

from collections.abc import Iterator
from typing import Any, Self

from shale.core.bytes_like import BytesLike
from shale.engine.scan import scan
from shale.engine.scan.recency import RecencyScan
from shale.errors import InvalidRequestError
from shale.kernels.rows import Rows, rows_from_entries
from shale.sync.loop_thread import LoopThread
from shale.types import FLAG_CREATE_TS, FLAG_EXPIRE_TS, Entry, Row

_FIRST_FETCH = 64
"""Rows of the first trip: small, so that a caller who wants few rows does not wait for thousands."""
_FETCH_MAX = 2048


class Scan:
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

    def next_batch(self, size: int) -> list[Row]:
        """Return the next ``size`` rows, fewer at the end, and then none."""
        batch = self._fetched[self._given : self._given + size]
        self._given += len(batch)
        if len(batch) < size:
            more = self._loop.call(self._inner.next_batch(size - len(batch)))
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

    def arrow_batches(self) -> Iterator[Any]:
        """Yield the rest as ``pyarrow.RecordBatch``es; see ``shale.engine.scan.Scan.arrow_batches``.

        Raises:
            InvalidRequestError: pyarrow is not installed.
        """
        from shale.engine.arrow.batches import rows_to_batches

        while (rows := self.columns()) is not None:
            yield from rows_to_batches(rows)

    def to_arrow(self) -> Any:
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
