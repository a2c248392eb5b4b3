"""Forward scans: an async iterator of rows, made of columns that become objects chunk by chunk."""

from collections.abc import AsyncIterator, Iterator
from itertools import pairwise, repeat
from typing import TYPE_CHECKING

import numpy as np

from shale.engine.progress import raise_again
from shale.engine.scan_sources import visible_source
from shale.errors import InvalidRequestError, ShaleError
from shale.kernels.rows import EMPTY_ROWS, I64, U8, Rows
from shale.types import FLAG_CREATE_TS, FLAG_EXPIRE_TS, KeyRange, Row

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from shale.engine.pin import Use
    from shale.engine.read_view import ReadView
    from shale.iter.source import RowSource


_ROWS_AT_ONCE = 512
"""Rows that become objects together: more of them push each other out of the CPU's caches."""

_INTERRUPTED = "the scan was interrupted and cannot go on: begin another one behind the last row"


class Scan:
    """The rows of a range.  Iterate once, by row or by ``batches`` or ``columns``; leaving early leaks nothing."""

    __slots__ = (
        "_at",
        "_broken",
        "_chunk",
        "_key_range",
        "_left",
        "_max_seq",
        "_prefix",
        "_rows",
        "_settle",
        "_source",
        "_use",
        "_view",
    )

    def __init__(
        self,
        view: "ReadView | None",
        key_range: KeyRange,
        *,
        max_seq: int | None = None,
        prefix: bytes | None = None,
        limit: int | None = None,
        settle: "Callable[[], Awaitable[ReadView]] | None" = None,
    ) -> None:
        """Make no request.

        Args:
            view: what to read; ``None`` if ``settle`` tells when the first row is asked for.
            key_range: which keys.
            max_seq: versions above are invisible.
            prefix: all keys in the range begin with it.
            limit: rows at most.
            settle: gives the view.
        """
        self._view: ReadView | None = view
        self._settle = settle
        self._use: Use | None = None
        self._key_range = key_range
        self._max_seq = max_seq
        self._prefix = prefix
        self._left = limit
        self._source: RowSource | None = None
        self._rows: Iterator[Row] = iter(())
        self._chunk: Rows = EMPTY_ROWS
        self._at = 0
        self._broken: ShaleError | None = None

    def __aiter__(self) -> "Scan":
        return self

    async def __anext__(self) -> Row:
        for row in self._rows:
            return row
        self._rows = iter(await self._next_rows())
        for row in self._rows:
            return row
        raise StopAsyncIteration

    async def _next_rows(self) -> list[Row]:
        """Some rows as objects; none at the end."""
        if self._at >= len(self._chunk):
            self._chunk, self._at = await self.columns() or EMPTY_ROWS, 0
        start, self._at = self._at, self._at + _ROWS_AT_ONCE
        return rows_to_list(self._chunk.slice(start, min(self._at, len(self._chunk))))

    async def batches(self, size: int) -> AsyncIterator[list[Row]]:
        """Lists of ``size`` rows; the last may be shorter."""
        batch = list(self._rows)
        self._rows = iter(())
        while rows := await self._next_rows():
            batch += rows
            while len(batch) >= size:
                yield batch[:size]
                del batch[:size]
        if batch:
            yield batch

    async def columns(self) -> Rows | None:
        """The next rows as columns, all of them values; ``None`` at the end.

        After an error, or when the caller was cancelled while it waited, a scan cannot go on: what was being read is
        lost.  Every later call raises.
        """
        if self._broken is not None:
            raise_again(self._broken)
        if self._left == 0:
            self._finish()
        if self._source is None and not await self._begin():
            return None
        assert self._source is not None
        assert self._use is not None
        self._use.pin.check()
        try:
            rows = await self._source.next()
        except BaseException as error:
            self._finish()
            self._broken = error if isinstance(error, ShaleError) else InvalidRequestError(_INTERRUPTED)
            raise
        if rows is None:
            self._finish()
            return None
        if self._left is not None:
            rows = rows.slice(0, min(self._left, len(rows)))
            self._left -= len(rows)
        return rows

    async def _begin(self) -> bool:
        """Choose what to merge; false if the scan is over."""
        if self._settle is not None:
            self._view, self._settle = await self._settle(), None
        view = self._view
        if view is None:
            return False
        self._use = view.pin.use()
        self._source = visible_source(
            view, self._key_range, max_seq=self._max_seq, prefix=self._prefix, limit=self._left
        )
        return True

    def _finish(self) -> None:
        """Let go of the view, so that its owner may release what protects it."""
        self._view = self._source = self._use = self._settle = None


def rows_to_list(rows: Rows) -> list[Row]:
    """Rows as objects."""
    if not len(rows):
        return []
    columns = (
        byte_strings(rows.key_bytes, rows.key_offsets),
        byte_strings(rows.val_bytes, rows.val_offsets),
        rows.seq.tolist(),
        _stamps(rows, rows.create_ts, FLAG_CREATE_TS),
        _stamps(rows, rows.expire_ts, FLAG_EXPIRE_TS),
    )
    return list(map(tuple.__new__, repeat(Row), zip(*columns, strict=False)))


def byte_strings(data: U8, offsets: I64) -> list[bytes]:
    """The strings between offsets.  Where all have one length numpy cuts them, several times as fast."""
    first, last = int(offsets[0]), int(offsets[-1])
    lengths = offsets[1:] - offsets[:-1]
    length = int(lengths[0])
    if length and bool((lengths == length).all()):
        strings: list[bytes] = np.ascontiguousarray(data[first:last]).view(f"V{length}").tolist()
        return strings
    blob = data[first:last].tobytes()
    bounds = (offsets - first).tolist()
    return [blob[start:end] for start, end in pairwise(bounds)]


def _stamps(rows: Rows, stamps: I64, flag: int) -> Iterator[int | None]:
    """A column of timestamps with ``None`` where the flag is not set."""
    present = rows.flags & np.uint8(flag) != 0
    if present.all():
        return iter(stamps.tolist())
    if not present.any():
        return repeat(None)
    return iter([stamp if has else None for stamp, has in zip(stamps.tolist(), present.tolist(), strict=True)])
