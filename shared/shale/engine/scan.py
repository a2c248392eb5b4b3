"""Scans: an async iterator of rows, made of columns that become objects chunk by chunk."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from itertools import pairwise, repeat
from typing import TYPE_CHECKING

import numpy as np

from shale.engine.memtable import Memtable
from shale.engine.progress import raise_again
from shale.engine.scan_sources import ScanPlan, visible_source
from shale.errors import InvalidRequestError, ShaleError, SstMissing
from shale.kernels.rows import EMPTY_ROWS, I64, U8, Rows
from shale.types import FLAG_CREATE_TS, FLAG_EXPIRE_TS, UNBOUNDED, KeyRange, Row, excluded

if TYPE_CHECKING:
    from shale.engine.pin import Use
    from shale.engine.read_point import Claim, ReadPoint
    from shale.iter.source import RowSource


_ROWS_AT_ONCE = 512
"""Rows that become objects together: more of them push each other out of the CPU's caches."""

_INTERRUPTED = "the scan was interrupted and cannot go on: begin another one behind the last row"


class Scan:
    """The rows of a range.  Iterate once, by row or by ``batches`` or ``columns``; leaving early leaks nothing.

    It shows one state, whatever is flushed, compacted and collected meanwhile: it holds its sequence number, and goes
    on in the newest manifest when an SST of its own is gone.
    """

    __slots__ = (
        "_at",
        "_broken",
        "_chunk",
        "_held",
        "_is_over",
        "_last_key",
        "_left",
        "_plan",
        "_point",
        "_rows",
        "_source",
        "_use",
    )

    def __init__(
        self,
        point: "ReadPoint",
        key_range: KeyRange,
        *,
        prefix: bytes | None = None,
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
            limit: rows at most.
            now_ms: rows that have expired by then are invisible; ``None``: they are shown.
            read_ahead_bytes: of one request; ``None``: what the handle says.
            cache_blocks: whether short reads go into the cache.
        """
        self._point: ReadPoint | None = point
        self._held: Claim | None = None
        if point.keeper is not None and point.max_seq is not None:
            self._held = point.keeper.hold(point.max_seq)
        self._use: Use | None = None
        self._plan = ScanPlan(
            key_range=key_range,
            prefix=prefix,
            now_ms=now_ms,
            read_ahead_bytes=read_ahead_bytes,
            cache_blocks=cache_blocks,
        )
        self._left = limit
        self._source: RowSource | None = None
        self._rows: Iterator[Row] = iter(())
        self._chunk: Rows = EMPTY_ROWS
        self._at = 0
        self._last_key: bytes | None = None
        self._broken: ShaleError | None = None
        self._is_over = False

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
        if self._is_over:
            return None
        try:
            rows = await self._next_columns()
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
        self._last_key = rows.key(len(rows) - 1)
        return rows

    def close(self) -> None:
        """Let go of everything; there are no more rows.  Dropping the scan does the same."""
        self._finish()
        self._rows = iter(())
        self._chunk = EMPTY_ROWS

    async def _next_columns(self) -> Rows | None:
        while True:
            if self._source is None:
                await self._begin()
            assert self._source is not None
            assert self._use is not None
            self._use.pin.check()
            try:
                return await self._source.next()
            except SstMissing as gone:
                await self._go_on_elsewhere(gone)

    async def _begin(self) -> None:
        """Choose what to merge."""
        point = self._point
        assert point is not None
        if point.settle is not None:
            point = self._point = await point.settle()
        view = point.view
        for table in view.tables:
            if isinstance(table, Memtable) and table.has_long_tail:
                await table.prepare(view.reader.env.cpu)
        self._use = view.pin.use()
        plan = replace(self._plan, key_range=self._rest_of_range(), max_seq=point.max_seq, limit=self._left)
        self._source = visible_source(view, plan)

    async def _go_on_elsewhere(self, gone: SstMissing) -> None:
        """Go on in a newer view: an SST of this one was collected, because a compaction has replaced it."""
        point = self._point
        assert point is not None
        self._source = self._use = None
        if point.keeper is None or (self._held is None and self._last_key is not None):
            # Nothing newer may be read in its place, or what was visible when the scan began may not be there any more.
            point.view.reader.count_loss()
            raise gone
        self._point = replace(point, view=await point.keeper.renew(gone))

    def _rest_of_range(self) -> KeyRange:
        if self._last_key is None:
            return self._plan.key_range
        return self._plan.key_range.intersect(KeyRange(excluded(self._last_key), UNBOUNDED))

    def _finish(self) -> None:
        """Let go of the view, so that its owner may release what protects it."""
        self._is_over = True
        self._point = self._source = self._use = None
        if self._held is not None:
            self._held.close()
            self._held = None


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
