"""Reads of single blocks that do not wait, into the cache: from files that the page cache holds."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from shale.errors import CorruptionError
from shale.format.blocks.section import open_section
from shale.format.blocks.transform import BlockTransformer
from shale.kernels.columns import address_of
from shale.kernels.dispatch import compiled, use_kernels
from shale.kernels.rows import I64
from shale.sst.access_counts import AccessCounts
from shale.sst.cache import BlockCache
from shale.sst.meta import SstMeta
from shale.sst.reads.local_reader import LocalReader
from shale.sst.slot import SstSlot
from shale.types import Compression

_BYTES_MAX = 256 << 10
"""A larger block is for the reads that wait; and so long is one read for neighbouring blocks."""
_IMAGE_BYTES_MAX = 4 << 20
"""After so many bytes one read unpacks no further block."""
_GAP_BYTES_MAX = 16 << 10
"""To read so many bytes between two blocks costs less than another read."""


class LocalBlocks:
    """The blocks of one database.

    Args:
        local: reads files; ``None``: there are none on this machine, and every block would wait.
        cache: keeps the blocks.
        counts: counts misses.
        transformer: see ``SstReaderOptions``, as the next.
        on_read: receives the size of every read.
    """

    def __init__(
        self,
        local: LocalReader | None,
        cache: BlockCache,
        counts: AccessCounts,
        *,
        transformer: BlockTransformer | None,
        on_read: Callable[[int], None] | None,
    ) -> None:
        self._local = local
        self._cache = cache
        self._counts = counts
        self._transformer = transformer
        self._on_read = on_read

    def read_now(self, slot: SstSlot, meta: SstMeta, block: int) -> bytes | None:
        """Read one block into the cache without waiting, and return it; ``None`` if that is impossible."""
        local = self._local
        if local is None:
            return None
        start, end = meta.index.offsets[block : block + 2].tolist()
        if end - start > _BYTES_MAX or (stored := local.read(slot, start, end)) is None:
            return None
        image = self._open_image(slot, meta, stored, local.buffer_address)
        if image is None:
            slot.files.clear()
            return None
        self._counts.block_misses += 1
        self._note_read(end - start)
        self._cache.put_block(slot, block, image)
        return image

    def read_many_now(self, slot: SstSlot, meta: SstMeta, blocks: Sequence[int]) -> int:
        """Read ascending blocks that are not cached into the cache without waiting, neighbours with one read.

        Returns:
            how many blocks were read: the next one is damaged, would wait, or had to be left out because those before
            are large unpacked.
        """
        bounds = meta.index.offsets
        spans = np.stack([bounds[blocks], bounds[1:][blocks]], axis=1)
        for first, last in _runs(spans):
            count = self._run_now(slot, meta, blocks[first:last], spans[first:last])
            self._counts.block_misses += count
            if count < last - first:
                return first + count
        return len(blocks)

    def read_range_now(self, slot: SstSlot, meta: SstMeta, first: int, last: int) -> bool:
        """Read the blocks ``[first, last)``, none of which is cached; see ``read_many_now``.

        Returns:
            Whether all were read.
        """
        bounds = meta.index.offsets[first : last + 1]
        spans = np.empty((last - first, 2), np.int64)
        spans[:, 0], spans[:, 1] = bounds[:-1], bounds[1:]
        count = self._run_now(slot, meta, range(first, last), spans)
        self._counts.block_misses += count
        return count == last - first

    def are_images(self, slot: SstSlot) -> bool:
        """Return whether kernels read the blocks of an SST as they are stored."""
        return slot.sst.info.compression is Compression.NONE and self._transformer is None and use_kernels()

    def fill(self, slot: SstSlot, meta: SstMeta, first: int, last: int, into: memoryview) -> bool:
        """Fill a buffer with the stored blocks ``[first, last)``, unchecked; return false if that would wait."""
        if self._local is None or not self._local.fill(slot, int(meta.index.offsets[first]), into):
            return False
        self._counts.block_misses += last - first
        self._note_read(len(into))
        return True

    def _run_now(self, slot: SstSlot, meta: SstMeta, blocks: Sequence[int], spans: I64) -> int:
        """Read blocks that lie near each other; see ``read_many_now``."""
        start, end = int(spans[0, 0]), int(spans[-1, 1])
        local = self._local
        if local is None or end - start > _BYTES_MAX or (stored := local.read(slot, start, end)) is None:
            return 0
        self._note_read(end - start)
        images = self._open_images(slot, meta, stored, local.buffer_address, spans - start)
        self._cache.put_blocks(slot, blocks[: len(images)], images)
        return len(images)

    def _open_image(self, slot: SstSlot, meta: SstMeta, stored: memoryview, address: int) -> bytes | None:
        """Return the image of a block; ``None`` if it is damaged."""
        if self.are_images(slot):
            image = compiled.open_image(address, len(stored))
            return image if type(image) is bytes else None
        try:
            return bytes(
                open_section(
                    stored,
                    slot.sst.info.compression,
                    slot.path,
                    transformer=self._transformer,
                    image_max=meta.block_image_max,
                )
            )
        except CorruptionError:
            return None

    def _open_images(self, slot: SstSlot, meta: SstMeta, stored: memoryview, address: int, spans: I64) -> list[bytes]:
        """Return the images of blocks up to the first one that is damaged, or as many as may be unpacked at once.

        ``spans``: where they are in ``stored``.
        """
        if self.are_images(slot):
            opened: list[bytes] = [b""] * len(spans)
            count = compiled.open_images(opened, len(spans), address, address_of(spans))
            if count < len(spans):
                slot.files.clear()
            return opened[:count]
        images: list[bytes] = []
        size = 0
        for start, end in spans.tolist():
            image = self._open_image(slot, meta, stored[start:end], address + start)
            if image is None:
                slot.files.clear()
                break
            images.append(image)
            size += len(image)
            if size >= _IMAGE_BYTES_MAX:
                break
        return images

    def _note_read(self, size: int) -> None:
        if self._on_read is not None:
            self._on_read(size)


def _runs(spans: I64) -> Iterator[tuple[int, int]]:
    """Yield ranges ``[first, last)`` of ascending spans that one read covers."""
    first, begin, before = 0, int(spans[0, 0]), int(spans[0, 1])
    for place, (start, end) in enumerate(spans.tolist()):
        if start - before > _GAP_BYTES_MAX or end - begin > _BYTES_MAX:
            if place > first:
                yield first, place
            first, begin = place, start
        before = end
    yield first, len(spans)
