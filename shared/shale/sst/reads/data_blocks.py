"""Reads data blocks of SSTs: single ones through the cache for lookups, spans past it for scans."""

from dataclasses import replace
from functools import partial

from shale.env import Env
from shale.format.blocks.decoder import StoredBlocks, decode_blocks, decode_images, open_blocks
from shale.format.blocks.section import open_section
from shale.format.blocks.transform import BlockTransformer
from shale.kernels.rows import Rows
from shale.sst.access_counts import AccessCounts
from shale.sst.cache import BlockCache
from shale.sst.meta import SstMeta
from shale.sst.reads.sections import INLINE_BYTES_MAX, SectionReader
from shale.sst.slot import SstSlot
from shale.store.port import LocalObject
from shale.types import EVERYTHING, Compression, KeyRange


class DataBlockReader:
    """The data blocks of one database.  Belongs to one event loop.

    Args:
        sections: reads bytes.
        cache: keeps blocks.
        counts: counts accesses.
        env: decodes large reads in threads.
        transformer: see ``SstReaderOptions``.
    """

    def __init__(
        self,
        sections: SectionReader,
        cache: BlockCache,
        counts: AccessCounts,
        env: Env,
        *,
        transformer: BlockTransformer | None,
    ) -> None:
        self._sections = sections
        self._cache = cache
        self._counts = counts
        self._env = env
        self._transformer = transformer

    async def images(
        self, slot: SstSlot, meta: SstMeta, first: int, last: int, *, keep: bool = True, is_admitted: bool = False
    ) -> list[bytes]:
        """Return the decoded blocks ``[first, last)`` for a lookup: from the cache, or with one range read.

        Args:
            slot, meta, first, last: which blocks.
            keep: what is read fills the cache.
            is_admitted: the caller has waited for memory.
        """
        if has_blocks(slot, meta, first, last):
            self._counts.block_hits += last - first
            slot.touched[first:last] = b"\x01" * (last - first)
            return [slot.images[block] for block in range(first, last)]
        self._counts.block_misses += last - first
        offsets, images = meta.index.offsets[first : last + 1].tolist(), []
        open_block = partial(
            open_section,
            compression=slot.sst.info.compression,
            path=slot.path,
            transformer=self._transformer,
            image_max=meta.block_image_max,
        )
        if not is_admitted:
            await self._cache.budget.admit(offsets[-1] - offsets[0])
        with self._sections.step(slot, "sst.blocks"):
            data = memoryview(await self._sections.read(slot, offsets[0], offsets[-1]))
            for block, start, end in zip(range(first, last), offsets, offsets[1:], strict=False):
                image = bytes(open_block(data[start - offsets[0] : end - offsets[0]], offset=start))
                if keep:
                    self._cache.put_block(slot, block, image)
                images.append(image)
        return images

    async def rows(
        self, slot: SstSlot, meta: SstMeta, first: int, last: int, *, keep: bool = False, is_admitted: bool = False
    ) -> Rows:
        """Return all rows of the blocks ``[first, last)``, with one range read unless the cache has every block.

        Args:
            slot: the SST.
            meta: its metadata.
            first, last: which blocks.
            keep: fill the cache.  Long scans do not, since they would evict the blocks of lookups.
            is_admitted: the caller has waited for memory.

        Raises:
            CorruptionError: the object is missing, or a block is malformed; the error has its offset.
        """
        offsets = meta.index.offsets[first : last + 1]
        version, path = slot.sst.format_version, slot.path
        if keep or has_blocks(slot, meta, first, last):
            images = await self.images(slot, meta, first, last, is_admitted=is_admitted)
            size_bytes = int(offsets[-1] - offsets[0])
            decode = partial(decode_images, images, offsets, version=version, path=path)
        else:
            data = await self.read_stored(slot, meta, first, last)
            size_bytes = len(data)
            decode = partial(
                decode_blocks,
                data,
                offsets,
                version=version,
                compression=slot.sst.info.compression,
                path=path,
                transformer=self._transformer,
                image_max=meta.block_image_max,
            )
        with self._sections.counting_corruption(slot):
            return decode() if size_bytes <= INLINE_BYTES_MAX else await self._env.cpu.run(decode)

    async def read_stored(self, slot: SstSlot, meta: SstMeta, first: int, last: int) -> memoryview:
        """Return the bytes of the blocks ``[first, last)``, past the cache."""
        with self._sections.step(slot, "sst.blocks"):
            return await self._sections.read(slot, int(meta.index.offsets[first]), int(meta.index.offsets[last]))

    async def open(self, slot: SstSlot, meta: SstMeta, first: int, last: int, visible: KeyRange) -> StoredBlocks:
        """Return the blocks ``[first, last)`` uncompressed, past the cache; their rows are not checked yet.

        Raises:
            CorruptionError: the object is missing, or a block cannot be decompressed.
        """
        offsets = meta.index.offsets[first : last + 1]
        compression = slot.sst.info.compression
        with self._sections.step(slot, "sst.blocks"):
            data = await self._sections.read(slot, int(offsets[0]), int(offsets[-1]))
            unpack = partial(
                open_blocks,
                data,
                offsets,
                version=slot.sst.format_version,
                compression=compression,
                path=slot.path,
                transformer=self._transformer,
                image_max=meta.block_image_max,
            )
            is_cheap = len(data) <= INLINE_BYTES_MAX or (compression is Compression.NONE and self._transformer is None)
            blocks = unpack() if is_cheap else await self._env.cpu.run(unpack)
            return blocks if visible is EVERYTHING else replace(blocks, visible=visible)

    def open_direct(self, slot: SstSlot) -> LocalObject | None:
        """Open the file of an SST whose bytes are its blocks; ``None``: there is none, or reads of it may wait."""
        is_image = slot.sst.info.compression is Compression.NONE and self._transformer is None
        return self._sections.open_whole(slot) if is_image else None


def has_blocks(slot: SstSlot, meta: SstMeta, first: int, last: int) -> bool:
    """Return whether the cache has the blocks ``[first, last)``."""
    return slot.meta is meta and all(block in slot.images for block in range(first, last))
