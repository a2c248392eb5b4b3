"""Rows of SSTs in key order, for scans and compactions: one range read per 4 MiB, the next one in flight.

Both sources are ``RowSource``s (``shale.iter``): ``next`` gives chunks in columns, by ascending key and descending
seq, never empty, then ``None``.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypedDict, TypeVar, Unpack

from shale.format.block import StoredBlocks
from shale.kernels.rows import I64, Rows
from shale.sst.meta import SstMeta
from shale.sst.read_ahead import Fetch, ReadAhead
from shale.sst.reader import SstReader
from shale.sst.row_search import rows_in_range, rows_up_to
from shale.sst.slot import SstSlot
from shale.types import EVERYTHING, U64_MAX, Compression, KeyRange, SortedRun, SstView

READ_AHEAD_BYTES = 4 * 1024 * 1024
_SHORT_READ_BYTES = 8 * 1024
_KEPT_READ_BYTES = 512 * 1024
_FRUGAL_READ_BYTES_MIN = 32 * 1024
"""What is compressed better than anything may take a megabyte or two: smaller reads would cost more than they save."""
_ROW_BYTES = 256
"""What a row takes where the SST does not say how many it has."""


class SpanOptions(TypedDict, total=False):
    """What every source takes by name; see ``_Spans``."""

    prefix: bytes | None
    read_ahead: ReadAhead | None
    rows_wanted: int | None
    is_frugal: bool
    backward: bool


class CachedOptions(SpanOptions, total=False):
    """What sources take besides that use the cache."""

    keeps: bool


class SourceOptions(CachedOptions, total=False):
    """What sources of rows take besides."""

    max_seq: int


T = TypeVar("T", Rows, StoredBlocks)


class _Spans(ABC, Generic[T]):
    """Views that follow each other in key order (neighbours may share one key), read span by span."""

    def __init__(
        self,
        reader: SstReader,
        views: Sequence[SstView],
        key_range: KeyRange = EVERYTHING,
        read_ahead_bytes: int = READ_AHEAD_BYTES,
        *,
        prefix: bytes | None = None,
        read_ahead: ReadAhead | None = None,
        rows_wanted: int | None = None,
        is_frugal: bool = False,
        backward: bool = False,
    ) -> None:
        """Make no request yet.

        Args:
            reader: reads and caches metadata.
            views: in key order.
            key_range: rows outside are left out.
            read_ahead_bytes: size of one range read, rounded up to whole blocks.
            prefix: what all keys in the range begin with; SSTs whose filters exclude it are not read.
            read_ahead: where the next read is started while the caller works on the last one; ``None``: it is not.
            rows_wanted: rows that the caller probably needs: reads begin small and grow, and short ones are cached.
            is_frugal: ``read_ahead_bytes`` is the size of what a read unpacks to: memory counts more than requests.
            backward: chunks come from the last to the first; inside each rows ascend all the same.
        """
        self._reader = reader
        self._pending = [
            (view, visible) for view in views if not (visible := view.effective_range.intersect(key_range)).is_empty
        ]
        if not backward:
            self._pending.reverse()
        self._backward = backward
        self._read_bytes = read_ahead_bytes
        self._read_bytes_max = read_ahead_bytes
        self._prefix = prefix
        self._read_ahead = read_ahead
        self._rows_wanted = rows_wanted
        self._is_frugal = is_frugal
        self._next_fetch: Fetch[T | None] | None = None
        self._window: _Window | None = None
        self._has_ended = False

    async def next(self) -> T | None:
        """The next chunk, ``None`` at the end and ever after.

        Raises:
            CorruptionError: an SST is gone or malformed.
        """
        fetch, self._next_fetch = self._next_fetch, None
        chunk = await fetch.wait() if fetch is not None else await self._read()
        self._has_ended = chunk is None
        self.read_on()
        return chunk

    @property
    def is_at_hand(self) -> bool:
        """Whether ``take`` has an answer.  For the thread of who reads, as the next three."""
        return self._next_fetch is not None and self._next_fetch.is_done

    @property
    def is_over(self) -> bool:
        """Whether ``next`` would certainly return ``None``, without waiting."""
        return self._has_ended or (self._next_fetch is None and self._is_done)

    def take(self) -> T | None:
        """What ``next`` would return, without waiting, because it was read ahead; ``read_on`` has to follow.

        Raises:
            CorruptionError: an SST is gone or malformed.
        """
        fetch, self._next_fetch = self._next_fetch, None
        assert fetch is not None, "there is nothing at hand"
        chunk = fetch.result()
        self._has_ended = chunk is None
        return chunk

    def read_on(self) -> None:
        """Start the next read, in the thread of the event loop, unless it is under way or there is none."""
        if self._next_fetch is not None or self._read_ahead is None:
            return
        if not self._has_ended and not self._is_done and self._reads_on:
            self._next_fetch = self._read_ahead.start(self._read)

    @property
    def _is_done(self) -> bool:
        return not self._pending and (self._window is None or self._window.is_done)

    @property
    def _reads_on(self) -> bool:
        """Whether the next read is worth starting before anybody asks for it."""
        return self._read_bytes == self._read_bytes_max

    async def _read(self) -> T | None:
        """Read on until a window has something in range."""
        while True:
            if self._window is None or self._window.is_done:
                if not self._pending:
                    return None
                view, visible = self._pending.pop()
                slot = self._reader.slot(view.sst)
                meta = await self._reader.load(slot)
                if self._prefix is None or self._reader.may_contain_prefix(meta, self._prefix):
                    self._window = (_BackwardWindow if self._backward else _Window)(slot, meta, visible)
                    if self._rows_wanted is not None:
                        wanted = max(_SHORT_READ_BYTES, self._rows_wanted * _row_bytes(slot, meta))
                        self._read_bytes, self._rows_wanted = min(wanted, self._read_bytes_max), None
                continue
            window = self._window
            first, last = window.advance(self._frugally(window) if self._is_frugal else self._read_bytes)
            chunk = await self._load(window, first, last)
            self._read_bytes = min(2 * self._read_bytes, self._read_bytes_max)
            if chunk is not None:
                return chunk

    def _frugally(self, window: "_Window") -> int:
        size_bytes = self._read_bytes // _unpacked_ratio(window.slot, window.meta)
        return max(size_bytes, min(self._read_bytes, _FRUGAL_READ_BYTES_MIN))

    @abstractmethod
    async def _load(self, window: "_Window", first: int, last: int) -> T | None:
        """Read the blocks ``[first, last)`` of a window; ``None`` if nothing of them is in range."""


class ViewsSource(_Spans[Rows]):
    """Their rows.  ``max_seq``: rows above are left out.  ``keeps``: short reads go into the cache."""

    def __init__(
        self,
        reader: SstReader,
        views: Sequence[SstView],
        key_range: KeyRange = EVERYTHING,
        read_ahead_bytes: int = READ_AHEAD_BYTES,
        *,
        max_seq: int = U64_MAX,
        keeps: bool = True,
        **options: Unpack[SpanOptions],
    ) -> None:
        super().__init__(reader, views, key_range, read_ahead_bytes, **options)
        self._max_seq = max_seq
        self._keeps = keeps

    async def _load(self, window: "_Window", first: int, last: int) -> Rows | None:
        keep = self._keeps and self._read_bytes <= _KEPT_READ_BYTES
        rows = await self._reader.rows(window.slot, window.meta, first, last, keep=keep)
        rows = rows_up_to(rows_in_range(rows, window.visible), self._max_seq)
        return rows if len(rows) else None


class BlockSource(_Spans[StoredBlocks]):
    """Their blocks, for a merge that reads rows where they lie.  The first and the last may hold rows out of range."""

    async def _load(self, window: "_Window", first: int, last: int) -> StoredBlocks | None:
        return await self._reader.stored(window.slot, window.meta, first, last, _edges(window))


class CachedBlockSource(_Spans[StoredBlocks]):
    """The same, with the use of the cache that ``ViewsSource`` makes."""

    def __init__(
        self,
        reader: SstReader,
        views: Sequence[SstView],
        key_range: KeyRange = EVERYTHING,
        read_ahead_bytes: int = READ_AHEAD_BYTES,
        *,
        keeps: bool = True,
        **options: Unpack[SpanOptions],
    ) -> None:
        super().__init__(reader, views, key_range, read_ahead_bytes, **options)
        self._keeps = keeps

    async def _load(self, window: "_Window", first: int, last: int) -> StoredBlocks | None:
        keep = self._keeps and self._read_bytes <= _KEPT_READ_BYTES
        return await self._reader.stored_or_cached(window.slot, window.meta, first, last, _edges(window), keep=keep)


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


def _edges(window: "_Window") -> KeyRange:
    """Which keys of the span that was given last are wanted, as far as rows have to be compared with it."""
    if window.is_done:
        return window.visible
    return KeyRange(start=window.visible.start)  # keys of all blocks but the last are below the end, says the index


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


class _BackwardWindow(_Window):
    """The same from the end on."""

    __slots__ = ()

    def advance(self, size_bytes: int) -> tuple[int, int]:
        """The span ``[first, last)`` before the one that was given last."""
        last = self._last
        self._last = span_begin(self.meta.index.offsets, self._next, last, size_bytes)
        return self._last, last


def _row_bytes(slot: SstSlot, meta: SstMeta) -> int:
    rows = meta.stats.num_rows if meta.stats is not None else 0
    return slot.sst.info.data_len // rows + 1 if rows else _ROW_BYTES


def _unpacked_ratio(slot: SstSlot, meta: SstMeta) -> int:
    """How many times as large blocks are without compression, as far as the SST says."""
    if slot.sst.info.compression is Compression.NONE or meta.stats is None:
        return 1
    return max(1, (meta.stats.raw_key_size + meta.stats.raw_val_size) // max(1, slot.sst.info.data_len))


def span_end(offsets: I64, first: int, last: int, size_bytes: int) -> int:
    """Where a read that begins at block ``first`` ends: with the block that fills ``size_bytes``, at most ``last``.

    Rounding up keeps a scan at one read per ``size_bytes`` of data.
    """
    target = int(offsets[first]) + size_bytes
    end = int(offsets[first : last + 1].searchsorted(target, side="left")) + first
    return min(max(end, first + 1), last)


def span_begin(offsets: I64, first: int, last: int, size_bytes: int) -> int:
    """Where a read that ends before block ``last`` begins: with the block that fills ``size_bytes``, from ``first`` on.

    It rounds as ``span_end`` does.
    """
    target = int(offsets[last]) - size_bytes
    begin = int(offsets[first : last + 1].searchsorted(target, side="right")) + first - 1
    return max(min(begin, last - 1), first)
