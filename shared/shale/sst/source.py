"""Rows of SSTs in key order, for scans and compactions: one range read per 4 MiB, the next one in flight.

Both sources are ``RowSource``s (``shale.iter``): ``next`` gives chunks in columns, by ascending key and descending
seq, never empty, then ``None``.
"""

from collections.abc import Sequence
from typing import TypedDict, Unpack

from shale.kernels.rows import I64, Rows
from shale.sst.meta import SstMeta
from shale.sst.read_ahead import Fetch, ReadAhead
from shale.sst.reader import SstReader
from shale.sst.row_search import rows_in_range, rows_up_to
from shale.sst.slot import SstSlot
from shale.types import EVERYTHING, U64_MAX, KeyRange, SortedRun, SstView

READ_AHEAD_BYTES = 4 * 1024 * 1024
_SHORT_READ_BYTES = 8 * 1024
_KEPT_READ_BYTES = 512 * 1024
_ROW_BYTES = 256
"""What a row takes where the SST does not say how many it has."""


class SourceOptions(TypedDict, total=False):
    """What every source takes by name; see ``ViewsSource``."""

    max_seq: int
    prefix: bytes | None
    read_ahead: ReadAhead | None
    rows_wanted: int | None


class ViewsSource:
    """The rows of views that follow each other in key order (neighbours may share one key)."""

    def __init__(
        self,
        reader: SstReader,
        views: Sequence[SstView],
        key_range: KeyRange = EVERYTHING,
        read_ahead_bytes: int = READ_AHEAD_BYTES,
        *,
        max_seq: int = U64_MAX,
        prefix: bytes | None = None,
        read_ahead: ReadAhead | None = None,
        rows_wanted: int | None = None,
    ) -> None:
        """Make no request yet.

        Args:
            reader: reads and caches metadata.
            views: in key order.
            key_range: rows outside are left out.
            read_ahead_bytes: size of one range read, rounded up to whole blocks.
            max_seq: rows above are left out.
            prefix: what all keys in the range begin with; SSTs whose filters exclude it are not read.
            read_ahead: where the next read is started while the caller works on the last one; ``None``: it is not.
            rows_wanted: rows that the caller probably needs: reads begin small and grow, and short ones are cached.
        """
        self._reader = reader
        self._pending = [
            (view, visible) for view in views if not (visible := view.effective_range.intersect(key_range)).is_empty
        ]
        self._pending.reverse()
        self._read_bytes = read_ahead_bytes
        self._read_bytes_max = read_ahead_bytes
        self._max_seq = max_seq
        self._prefix = prefix
        self._read_ahead = read_ahead
        self._rows_wanted = rows_wanted
        self._next_fetch: Fetch[Rows | None] | None = None
        self._window: _Window | None = None

    async def next(self) -> Rows | None:
        """See ``RowSource``.

        Raises:
            CorruptionError: an SST is gone or malformed.
        """
        fetch, self._next_fetch = self._next_fetch, None
        rows = await fetch.wait() if fetch is not None else await self._read()
        if rows is not None and self._read_ahead is not None and not self._is_done and self._reads_on:
            self._next_fetch = self._read_ahead.start(self._read)
        return rows

    @property
    def _is_done(self) -> bool:
        return not self._pending and (self._window is None or self._window.is_done)

    @property
    def _reads_on(self) -> bool:
        """Whether the next read is worth starting before anybody asks for it."""
        return self._read_bytes == self._read_bytes_max

    async def _read(self) -> Rows | None:
        """Read on until a window has rows in range."""
        while True:
            if self._window is None or self._window.is_done:
                if not self._pending:
                    return None
                view, visible = self._pending.pop()
                slot = self._reader.slot(view.sst)
                meta = await self._reader.load(slot)
                if self._prefix is None or meta.filters.may_contain_prefix(self._prefix):
                    self._window = _Window(slot, meta, visible)
                    if self._rows_wanted is not None:
                        wanted = max(_SHORT_READ_BYTES, self._rows_wanted * _row_bytes(slot, meta))
                        self._read_bytes, self._rows_wanted = min(wanted, self._read_bytes_max), None
                continue
            window = self._window
            first, last = window.advance(self._read_bytes)
            keep = self._read_bytes <= _KEPT_READ_BYTES
            rows = await self._reader.rows(window.slot, window.meta, first, last, keep=keep)
            self._read_bytes = min(2 * self._read_bytes, self._read_bytes_max)
            rows = rows_up_to(rows_in_range(rows, window.visible), self._max_seq)
            if len(rows):
                return rows


class SstSource(ViewsSource):
    """The rows that one view shows."""

    def __init__(
        self,
        reader: SstReader,
        view: SstView,
        key_range: KeyRange = EVERYTHING,
        read_ahead_bytes: int = READ_AHEAD_BYTES,
        **options: Unpack[SourceOptions],
    ) -> None:
        super().__init__(reader, (view,), key_range, read_ahead_bytes, **options)


class RunSource(ViewsSource):
    """The rows of a sorted run."""

    def __init__(
        self,
        reader: SstReader,
        run: SortedRun,
        key_range: KeyRange = EVERYTHING,
        read_ahead_bytes: int = READ_AHEAD_BYTES,
        **options: Unpack[SourceOptions],
    ) -> None:
        super().__init__(reader, run.ssts, key_range, read_ahead_bytes, **options)


class _Window:
    """A span of blocks that moves over one SST."""

    __slots__ = ("_last", "_next", "meta", "slot", "visible")

    def __init__(self, slot: SstSlot, meta: SstMeta, visible: KeyRange) -> None:
        self.slot = slot
        self.meta = meta
        self.visible = visible
        self._next, self._last = meta.index.block_range(visible)

    @property
    def is_done(self) -> bool:
        return self._next >= self._last

    def advance(self, size_bytes: int) -> tuple[int, int]:
        """The next span ``[first, last)``."""
        first = self._next
        self._next = span_end(self.meta.index.offsets, first, self._last, size_bytes)
        return first, self._next


def _row_bytes(slot: SstSlot, meta: SstMeta) -> int:
    rows = meta.stats.num_rows if meta.stats is not None else 0
    return slot.sst.info.data_len // rows + 1 if rows else _ROW_BYTES


def span_end(offsets: I64, first: int, last: int, size_bytes: int) -> int:
    """Where a read that begins at block ``first`` ends: with the block that fills ``size_bytes``, at most ``last``.

    Rounding up keeps a scan at one read per ``size_bytes`` of data.
    """
    target = int(offsets[first]) + size_bytes
    end = int(offsets[first : last + 1].searchsorted(target, side="left")) + first
    return min(max(end, first + 1), last)
