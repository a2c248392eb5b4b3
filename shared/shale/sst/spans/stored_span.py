"""Neighbouring blocks that are read together and unpacked in parts, so that no high ratio fills the memory."""

from collections.abc import Callable
from functools import partial
from itertools import accumulate
from typing import NamedTuple, TypeVar

from shale.core.bytes_like import BytesLike
from shale.errors import CorruptionError
from shale.format.blocks.decoder import StoredBlocks, decode_unpacked, images_as_blocks
from shale.format.blocks.section import open_section
from shale.kernels.rows import I64, Rows
from shale.sst.budget import LARGE_VALUE_BYTES
from shale.sst.meta import SstMeta
from shale.sst.reader import SstReader
from shale.sst.reads.data_blocks import has_blocks
from shale.sst.reads.sections import INLINE_BYTES_MAX
from shale.sst.slot import SstSlot
from shale.types import Compression, KeyRange

T = TypeVar("T")

_UNPACKED_RATIO = 4
"""A read unpacks at once to so many times its size; most blocks have a lower ratio."""
_UNPACKED_BYTES_MIN = 1 << 20


class StoredSpan(NamedTuple):
    """The blocks ``[first, last)`` of an SST; ``data``: as they are stored, ``None`` before they are read."""

    slot: SstSlot
    meta: SstMeta
    first: int
    last: int
    data: BytesLike | None = None

    @property
    def offsets(self) -> I64:
        """Where each block begins in the object, and where the last one ends."""
        return self.meta.index.offsets[self.first : self.last + 1]

    @property
    def size_bytes(self) -> int:
        """The stored size."""
        offsets = self.meta.index.offsets
        return int(offsets[self.last] - offsets[self.first])

    @property
    def is_compressed(self) -> bool:
        """Whether its blocks can be larger than they are stored."""
        return self.slot.sst.info.compression is not Compression.NONE

    def cut(self, count: int, *, from_end: bool) -> "tuple[StoredSpan, StoredSpan | None]":
        """Return the first ``count`` blocks, or the last ones, and the others."""
        if count >= self.last - self.first:
            return self, None
        if from_end:
            return self._slice(self.last - count, self.last), self._slice(self.first, self.last - count)
        return self._slice(self.first, self.first + count), self._slice(self.first + count, self.last)

    def _slice(self, first: int, last: int) -> "StoredSpan":
        if self.data is None:
            return self._replace(first=first, last=last)
        offsets = self.meta.index.offsets
        start = int(offsets[self.first])
        data = memoryview(self.data)[int(offsets[first]) - start : int(offsets[last]) - start]
        return self._replace(first=first, last=last, data=data)


class SpanParts:
    """Reads spans, and unpacks as much of each at a time as the memory of one read allows.

    Args:
        reader: reads SSTs.
        read_bytes: the size of one read.
        reverse: begin with the last blocks of a span.
        is_admitted: the caller has memory for large blocks.
    """

    __slots__ = ("_is_admitted", "_reader", "_reverse", "_size_max")

    def __init__(self, reader: SstReader, read_bytes: int, *, reverse: bool = False, is_admitted: bool = False) -> None:
        self._reader = reader
        self._is_admitted = is_admitted
        self._size_max = max(_UNPACKED_RATIO * read_bytes, _UNPACKED_BYTES_MIN)
        self._reverse = reverse

    async def rows(self, span: StoredSpan, *, keep: bool = False) -> tuple[Rows, StoredSpan | None]:
        """Return the rows of the next blocks, and the span that is left.  ``keep``: fill the cache.

        Raises:
            CorruptionError: the object is missing, or a block is malformed; the error has its offset.
        """
        part, rest, is_whole = self._next(span, keep=keep)
        if is_whole:
            rows = await self._reader.data_blocks.rows(
                part.slot, part.meta, part.first, part.last, keep=keep, is_admitted=self._is_admitted
            )
            return rows, rest
        return await self._read_on(span, self._rows_of, keep=keep)

    async def blocks(
        self, span: StoredSpan, visible: KeyRange, *, keep: bool = False
    ) -> tuple[StoredBlocks, StoredSpan | None]:
        """Return the next blocks uncompressed, and the span that is left; their rows are not checked yet.

        Args:
            span: the blocks.
            visible: the keys of the rows to read.
            keep: fill the cache.

        Raises:
            CorruptionError: the object is missing, or a block cannot be decompressed.
        """
        part, rest, is_whole = self._next(span, keep=keep)
        slot, meta, first, last, _ = part
        if not is_whole:
            return await self._read_on(span, partial(_blocks_of, visible), keep=keep)
        if not keep and not has_blocks(slot, meta, first, last):
            return await self._reader.data_blocks.open(slot, meta, first, last, visible), rest
        images = await self._reader.data_blocks.images(slot, meta, first, last, is_admitted=self._is_admitted)
        return _blocks_of(visible, part, images), rest

    async def blocks_past_cache(self, span: StoredSpan, visible: KeyRange) -> tuple[StoredBlocks, StoredSpan | None]:
        """Do the same as ``blocks`` without the cache."""
        if not span.is_compressed:
            return await self._reader.data_blocks.open(span.slot, span.meta, span.first, span.last, visible), None
        return await self._read_on(span, partial(_blocks_of, visible), keep=False)

    def _next(self, span: StoredSpan, *, keep: bool) -> tuple[StoredSpan, StoredSpan | None, bool]:
        """Return the blocks to take next, the others, and whether the reader returns the former as a whole.

        It does so if the cache has them, if they are no larger unpacked, or if they wait for memory.
        """
        if not span.is_compressed:
            return span, None, True
        if span.data is None and has_blocks(span.slot, span.meta, span.first, span.last):
            part, rest = span.cut(self._count_cached(span), from_end=self._reverse)
            return part, rest, True
        return span, None, keep and span.data is None and span.size_bytes > LARGE_VALUE_BYTES

    def _count_cached(self, span: StoredSpan) -> int:
        """Return how many blocks, which the cache has, to take at once."""
        images, blocks = span.slot.images, range(span.first, span.last)
        sizes = accumulate(len(images[block]) for block in (reversed(blocks) if self._reverse else blocks))
        return next((count for count, size in enumerate(sizes, start=1) if size >= self._size_max), len(blocks))

    async def _read_on(
        self, span: StoredSpan, make: Callable[[StoredSpan, list[bytes]], T], *, keep: bool
    ) -> tuple[T, StoredSpan | None]:
        """Read a span unless it is read, and make something of its next blocks."""
        reader = self._reader
        if span.data is None:
            span = span._replace(data=await reader.data_blocks.read_stored(span.slot, span.meta, span.first, span.last))
            if keep:
                reader.counts.block_misses += span.last - span.first

        def unpack() -> tuple[StoredSpan, StoredSpan | None, list[bytes], T]:
            images = self._unpack(span)
            part, rest = span.cut(len(images), from_end=self._reverse)
            return part, rest, images, make(part, images)

        is_cheap = span.size_bytes <= INLINE_BYTES_MAX
        try:
            part, rest, images, made = unpack() if is_cheap else await reader.env.cpu.run(unpack)
        except CorruptionError:
            reader.count_corruption(span.slot.path)
            raise
        if keep:
            for block, image in enumerate(images, part.first):
                reader.cache.put_block(part.slot, block, image)
        return made, rest

    def _unpack(self, span: StoredSpan) -> list[bytes]:
        """Return the next blocks unpacked, in the order of the SST."""
        assert span.data is not None, "it was read"
        data, offsets, images = memoryview(span.data), span.offsets.tolist(), list[bytes]()
        numbers, size = range(span.last - span.first), 0
        for number in reversed(numbers) if self._reverse else numbers:
            start, end = offsets[number], offsets[number + 1]
            image = open_section(
                data[start - offsets[0] : end - offsets[0]],
                span.slot.sst.info.compression,
                span.slot.path,
                start,
                transformer=self._reader.transformer,
                image_max=span.meta.block_image_max,
            )
            images.append(bytes(image))
            size += len(image)
            if size >= self._size_max:
                break
        return images[::-1] if self._reverse else images

    def _rows_of(self, span: StoredSpan, images: list[bytes]) -> Rows:
        assert span.data is not None, "it was read"
        return decode_unpacked(
            images,
            span.data,
            span.offsets,
            version=span.slot.sst.format_version,
            compression=span.slot.sst.info.compression,
            path=span.slot.path,
            transformer=self._reader.transformer,
        )


def _blocks_of(visible: KeyRange, span: StoredSpan, images: list[bytes]) -> StoredBlocks:
    return images_as_blocks(
        images, span.offsets, version=span.slot.sst.format_version, path=span.slot.path, visible=visible
    )
