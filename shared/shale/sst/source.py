"""Rows of SSTs in key order, for scans and compactions: one range read per 4 MiB, and the next one in flight.

Sources of rows are ``RowSource``s (``shale.iter``): ``next`` returns chunks in columns, by ascending key and
descending seq, never empty, then ``None``.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Generic, TypedDict, TypeVar, Unpack

from shale.concurrency.gather import gather
from shale.concurrency.read_ahead import READ_AHEAD_BYTES, Fetch, ReadAhead
from shale.format.blocks.decoder import StoredBlocks
from shale.kernels.rows import Rows
from shale.sst.budget import LARGE_VALUE_BYTES
from shale.sst.meta import SstMeta
from shale.sst.reader import SstReader
from shale.sst.reads.data_blocks import has_blocks
from shale.sst.row_search import rows_in_range, rows_up_to
from shale.sst.slot import SstSlot
from shale.sst.spans.block_cursor import BlockCursor, ReverseBlockCursor
from shale.sst.spans.direct_reader import DIRECT_READ_BYTES, DirectReader
from shale.sst.spans.scan_room import ScanRoom
from shale.sst.spans.stored_span import SpanParts, StoredSpan
from shale.types import EVERYTHING, U64_MAX, Compression, KeyRange, SstView

_SHORT_READ_BYTES = 8 * 1024
_CACHED_READ_BYTES_MAX = 512 * 1024
_LOW_MEMORY_READ_BYTES_MIN = 32 * 1024
"""Smallest read of highly compressed data: it may unpack to a megabyte or two, but smaller reads cost more."""
_LOW_MEMORY_BLOCK_BYTES_MAX = 1024 * 1024
"""A larger block is not read ahead where memory counts: it is one large value, and a merge has many sources."""
_ROW_BYTES = 256
"""Assumed size of a row of an SST without stats."""


class SpanOptions(TypedDict, total=False):
    """The options of every source.

    prefix: all keys in the range begin with it; SSTs whose filters exclude it are not read.
    read_ahead: starts the next read while the caller works on the last one; ``None``: no read ahead.
    expected_rows: rows that the caller probably needs: reads begin small and grow, and short ones are cached.
    fetch_tasks: reads of full size that are made at the same time; each takes ``read_ahead_bytes`` of memory.
    low_memory: ``read_ahead_bytes`` is the unpacked size of a read, and large values are not read ahead: memory counts
        more than requests.
    reverse: chunks come from last to first; rows ascend inside a chunk.
    room: memory of the scan for large values, which are not read ahead then either; ``None``: no bound.
    """

    prefix: bytes | None
    read_ahead: ReadAhead | None
    expected_rows: int | None
    fetch_tasks: int
    low_memory: bool
    reverse: bool
    room: ScanRoom | None


class CachedOptions(SpanOptions, total=False):
    """The options of sources that use the cache."""

    cache_blocks: bool


class SourceOptions(CachedOptions, total=False):
    """The options of sources of rows."""

    max_seq: int


T = TypeVar("T", Rows, StoredBlocks)


class _SpanReader(ABC, Generic[T]):
    """Reads views in key order span by span; two neighbours may share one key."""

    def __init__(
        self,
        reader: SstReader,
        views: Sequence[SstView],
        key_range: KeyRange = EVERYTHING,
        read_ahead_bytes: int = READ_AHEAD_BYTES,
        **options: Unpack[SpanOptions],
    ) -> None:
        """Make no request.

        Args:
            reader: reads and caches metadata.
            views: in key order.
            key_range: rows outside are left out.
            read_ahead_bytes: size of one range read, rounded up to whole blocks.
            options: see ``SpanOptions``.
        """
        reverse = options.get("reverse", False)
        self._reader = reader
        self._pending = [
            (view, visible) for view in views if not (visible := view.effective_range.intersect(key_range)).is_empty
        ]
        if not reverse:
            self._pending.reverse()
        self._reverse = reverse
        self._read_bytes = read_ahead_bytes
        self._read_bytes_max = read_ahead_bytes
        self._prefix = options.get("prefix")
        self._read_ahead = options.get("read_ahead")
        self._expected_rows = options.get("expected_rows")
        self._low_memory = options.get("low_memory", False)
        self._room = options.get("room")
        if self._room is not None:
            self._room.sources += 1
        self._ahead_bytes_max = max(read_ahead_bytes, _LOW_MEMORY_BLOCK_BYTES_MAX)
        self._fetch_tasks = options.get("fetch_tasks", 1)
        self._parts = SpanParts(reader, read_ahead_bytes, reverse=reverse, is_admitted=self._room is not None)
        self._loaded: deque[T | StoredSpan] = deque()
        """Chunks that were read at the same time as the last one, and blocks that are read but not unpacked."""
        self._next_fetch: Fetch[T | None] | None = None
        self._cursor: BlockCursor | None = None
        self._has_ended = False

    async def next(self) -> T | None:
        """Return the next chunk; ``None`` at the end and ever after.

        Raises:
            CorruptionError: an SST is missing or malformed.
        """
        fetch, self._next_fetch = self._next_fetch, None
        chunk = await fetch.wait() if fetch is not None else await self._read()
        self._has_ended = chunk is None
        self.start_next_read()
        return chunk

    @property
    def is_ready(self) -> bool:
        """Whether ``take`` can return at once.  Only the reading thread uses this and the next three members."""
        return self._next_fetch is not None and self._next_fetch.is_done

    @property
    def is_over(self) -> bool:
        """Whether ``next`` certainly returns ``None`` without waiting."""
        return self._has_ended or (self._next_fetch is None and self._is_done)

    def take(self) -> T | None:
        """Return the chunk read ahead, without waiting; the caller then calls ``start_next_read``.

        Raises:
            CorruptionError: an SST is missing or malformed.
        """
        fetch, self._next_fetch = self._next_fetch, None
        assert fetch is not None, "no chunk is ready"
        chunk = fetch.result()
        self._has_ended = chunk is None
        return chunk

    def start_next_read(self) -> None:
        """Start the next read on the event loop, unless it is under way or there is none."""
        if self._next_fetch is not None or self._read_ahead is None:
            return
        if not self._has_ended and not self._is_done and self._reads_on:
            self._next_fetch = self._read_ahead.start(self._read)

    @property
    def _is_done(self) -> bool:
        return not self._pending and not self._loaded and (self._cursor is None or self._cursor.is_done)

    @property
    def _reads_on(self) -> bool:
        """Whether to start the next read before the caller asks for it."""
        cursor = self._cursor
        if cursor is not None:
            if self._low_memory and cursor.next_block_bytes > self._ahead_bytes_max:
                return False
            if self._room is not None and _unpacked_bytes(cursor) > LARGE_VALUE_BYTES:
                return False
        return self._read_bytes == self._read_bytes_max

    async def _read(self) -> T | None:
        """Read until a span has rows in range."""
        while True:
            if self._loaded:
                chunk = self._loaded.popleft()
                if not isinstance(chunk, StoredSpan):
                    return chunk
                assert self._cursor is not None, "it has read the span"
                self._loaded.extendleft(reversed(await self._load(self._cursor, chunk)))
                continue
            if self._cursor is None or self._cursor.is_done:
                if not self._pending:
                    return None
                view, visible = self._pending.pop()
                slot = self._reader.slot(view.sst)
                meta = await self._reader.metadata.load(slot)
                if self._prefix is None or self._reader.metadata.may_contain_prefix(meta, self._prefix):
                    self._cursor = (ReverseBlockCursor if self._reverse else BlockCursor)(slot, meta, visible)
                    if self._expected_rows is not None:
                        expected = max(_SHORT_READ_BYTES, self._expected_rows * _row_bytes(slot, meta))
                        self._read_bytes, self._expected_rows = min(expected, self._read_bytes_max), None
                continue
            await self._load_together(self._cursor)

    async def _load_together(self, cursor: BlockCursor) -> None:
        """Read the next span, and those after it at the same time if there is memory for them."""
        spans = [self._advance(cursor)]
        count = self._fetch_tasks if self._reads_on else 1
        while len(spans) < count and not cursor.is_done:
            spans.append(self._advance(cursor))
        if len(spans) == 1:
            self._loaded.extend(await self._load(cursor, spans[0]))
            self._read_bytes = min(2 * self._read_bytes, self._read_bytes_max)
            return
        for loaded in await gather([partial(self._load, cursor, span) for span in spans]):
            self._loaded.extend(loaded)

    def _advance(self, cursor: BlockCursor) -> StoredSpan:
        """Go on to the next span.  With a bound, a large value is a span of its own, so that its size is checked."""
        if self._room is not None:
            self._room.require(_unpacked_bytes(cursor))
        return StoredSpan(cursor.slot, cursor.meta, *self._advance_by(cursor, self._span_bytes(cursor)))

    def _advance_by(self, cursor: BlockCursor, size_bytes: int) -> tuple[int, int]:
        """Go on by about so many bytes, or one large value; return the first block and the one after the last."""
        return cursor.advance(size_bytes, None if self._room is None else _alone_bytes(cursor))

    async def _load(self, cursor: BlockCursor, span: StoredSpan) -> "list[T | StoredSpan]":
        """Return the next rows of a span, if any is in range, and the blocks that are left."""
        chunk, rest = await self._unpack(cursor, span)
        return [part for part in (chunk, rest) if part is not None]

    def _span_bytes(self, cursor: BlockCursor) -> int:
        """Return the size of the next read."""
        return self._low_memory_read_bytes(cursor) if self._low_memory else self._read_bytes

    def _low_memory_read_bytes(self, cursor: BlockCursor) -> int:
        size_bytes = self._read_bytes // _unpacked_ratio(cursor.slot, cursor.meta)
        return max(size_bytes, min(self._read_bytes, _LOW_MEMORY_READ_BYTES_MIN))

    @abstractmethod
    async def _unpack(self, cursor: BlockCursor, span: StoredSpan) -> tuple[T | None, StoredSpan | None]:
        """Read a span unless it is read; return its next rows, ``None`` if none is in range, and what is left."""


class SstViewsSource(_SpanReader[Rows]):
    """The rows of views.  ``max_seq``: newer rows are left out.  ``cache_blocks``: short reads fill the cache."""

    def __init__(
        self,
        reader: SstReader,
        views: Sequence[SstView],
        key_range: KeyRange = EVERYTHING,
        read_ahead_bytes: int = READ_AHEAD_BYTES,
        *,
        max_seq: int = U64_MAX,
        cache_blocks: bool = True,
        **options: Unpack[SpanOptions],
    ) -> None:
        super().__init__(reader, views, key_range, read_ahead_bytes, **options)
        self._max_seq = max_seq
        self._cache_blocks = cache_blocks

    async def _unpack(self, cursor: BlockCursor, span: StoredSpan) -> tuple[Rows | None, StoredSpan | None]:
        keep = self._cache_blocks and self._read_bytes <= _CACHED_READ_BYTES_MAX
        rows, rest = await self._parts.rows(span, keep=keep)
        rows = rows_up_to(rows_in_range(rows, cursor.visible), self._max_seq)
        return rows if len(rows) else None, rest


class BlockSource(_SpanReader[StoredBlocks]):
    """The stored blocks of views, for a merge; the first and the last may hold rows out of range."""

    async def _unpack(self, cursor: BlockCursor, span: StoredSpan) -> tuple[StoredBlocks, StoredSpan | None]:
        return await self._parts.blocks_past_cache(span, _edges(cursor))


class CachedBlockSource(_SpanReader[StoredBlocks]):
    """The stored blocks of views, using the cache as ``SstViewsSource`` does.

    What the page cache holds is read where it is needed; a chunk is valid until the next one then.
    """

    def __init__(
        self,
        reader: SstReader,
        views: Sequence[SstView],
        key_range: KeyRange = EVERYTHING,
        read_ahead_bytes: int = READ_AHEAD_BYTES,
        *,
        cache_blocks: bool = True,
        **options: Unpack[SpanOptions],
    ) -> None:
        super().__init__(reader, views, key_range, read_ahead_bytes, **options)
        self._cache_blocks = cache_blocks
        self._direct = DirectReader()
        self._direct_cursor: BlockCursor | None = None
        self._chunk_now: StoredBlocks | None = None

    def read_now(self) -> bool:
        """Read the next blocks in the calling thread, if that does not wait; ``take`` returns them then."""
        cursor = self._cursor
        if self._next_fetch is not None or cursor is None or cursor.is_done or not self._direct.can_read:
            return False
        if self._room is not None and not self._room.has(_unpacked_bytes(cursor)):
            return False
        first, last = self._advance_by(cursor, DIRECT_READ_BYTES)
        self._chunk_now = self._read_directly(cursor, first, last)
        if self._chunk_now is None:
            cursor.go_back(first)
            return False
        return True

    def take(self) -> StoredBlocks | None:
        """See ``_SpanReader``."""
        chunk, self._chunk_now = self._chunk_now, None
        return chunk if chunk is not None else super().take()

    @property
    def _reads_on(self) -> bool:
        return not self._direct.can_read and super()._reads_on

    @property
    def _keeps_blocks(self) -> bool:
        return self._cache_blocks and self._read_bytes <= _CACHED_READ_BYTES_MAX

    def _span_bytes(self, cursor: BlockCursor) -> int:
        if self._direct_cursor is not cursor:
            self._direct_cursor = cursor
            file = None if self._keeps_blocks else self._reader.data_blocks.open_direct(cursor.slot)
            self._direct.open(file, cursor.slot)
        return DIRECT_READ_BYTES if self._direct.can_read else super()._span_bytes(cursor)

    def _read_directly(self, cursor: BlockCursor, first: int, last: int) -> StoredBlocks | None:
        if cursor.slot.images and has_blocks(cursor.slot, cursor.meta, first, last):
            return None
        return self._direct.read(cursor.meta, first, last, _edges(cursor))

    async def _unpack(self, cursor: BlockCursor, span: StoredSpan) -> tuple[StoredBlocks, StoredSpan | None]:
        blocks = self._read_directly(cursor, span.first, span.last) if self._direct.can_read else None
        if blocks is not None:
            return blocks, None
        # A large value of a bounded scan has memory already, and would leave no room for other blocks.
        is_alone = self._room is not None and span.last - span.first == 1
        is_large = is_alone and span.size_bytes > _alone_bytes(cursor)
        return await self._parts.blocks(span, _edges(cursor), keep=self._keeps_blocks and not is_large)


def _edges(cursor: BlockCursor) -> KeyRange:
    """Return the key range that rows of the last span must be compared with."""
    if cursor.is_done:
        return cursor.visible
    return KeyRange(start=cursor.visible.start)  # the index keeps earlier blocks below the end


def _row_bytes(slot: SstSlot, meta: SstMeta) -> int:
    rows = meta.stats.num_rows if meta.stats is not None else 0
    return slot.sst.info.data_len // rows + 1 if rows else _ROW_BYTES


def _unpacked_bytes(cursor: BlockCursor) -> int:
    """Return about how large the next block is unpacked: as a part of the SST of its stored size."""
    stored_bytes = cursor.next_block_bytes
    most_bytes, unpacked_bytes = cursor.meta.block_image_max, stored_bytes * _unpacked_ratio(cursor.slot, cursor.meta)
    return unpacked_bytes if most_bytes is None else min(unpacked_bytes, max(stored_bytes, most_bytes))


def _alone_bytes(cursor: BlockCursor) -> int:
    """Return the stored size above which a block probably holds a large value."""
    return LARGE_VALUE_BYTES // _unpacked_ratio(cursor.slot, cursor.meta)


def _unpacked_ratio(slot: SstSlot, meta: SstMeta) -> int:
    """Return the compression ratio of the blocks; 1 if the SST does not say."""
    if slot.sst.info.compression is Compression.NONE or meta.stats is None:
        return 1
    return max(1, (meta.stats.raw_key_size + meta.stats.raw_val_size) // max(1, slot.sst.info.data_len))
