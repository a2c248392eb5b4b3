"""Data blocks to rows in columns: many blocks per call by a kernel, a few by the plain codec.

A block has rows and a table of restart offsets (layout: ``shale.format.blocks.plain``).  Each block is compressed
separately and has a checksum (docs/reference/format.md 7 and 8).
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from shale.core.bytes_like import BytesLike
from shale.core.lazy_dataclass import dataclass
from shale.errors import CorruptionError
from shale.format.blocks.plain import KEY_BYTES_SPARE, decode_block_plain
from shale.format.blocks.refused_sections import REFUSED, SectionKey
from shale.format.blocks.section import open_section
from shale.format.blocks.transform import BlockTransformer
from shale.kernels.columns import ColumnBuffers, address_of
from shale.kernels.dispatch import compiled, use_kernels
from shale.kernels.layout import decoder as kernel
from shale.kernels.rows import EMPTY_ROWS, I64, U8, Rows, rows_from_entries
from shale.types import EVERYTHING, Compression, Entry, KeyRange

_ROW_BYTES_MIN = 12
_CRC_SIZE = 4
REMEMBERED_BYTES_MIN = 16 << 20
"""Smaller images are unpacked again in a few milliseconds."""


def decode_blocks(
    data: BytesLike,
    offsets: I64,
    *,
    version: int,
    compression: Compression,
    path: str,
    transformer: BlockTransformer | None = None,
    image_max: int | None = None,
) -> Rows:
    """Check, unpack and decode blocks that lie back to back.

    Args:
        data: the blocks as stored; its first byte is at ``offsets[0]`` of the object.
        offsets: shape (n+1,), where each block begins in the object, and where the last one ends.
        version: the block format, 1 or 2.
        compression: the codec of the file.
        path: the object's name, for errors.
        transformer: the transformer that the file was written with.
        image_max: the most bytes that an unpacked block can have; ``None``: unknown.

    Raises:
        CorruptionError: with path and offset; no block is returned.
    """
    if len(offsets) < 2:
        return EMPTY_ROWS
    _check_bounds(data, offsets, path)
    stored = _Stored(data, offsets, compression, path, transformer, image_max)
    return _decode_stored(stored, version)


def decode_unpacked(
    images: Sequence[bytes],
    data: BytesLike,
    offsets: I64,
    *,
    version: int,
    compression: Compression,
    path: str,
    transformer: BlockTransformer | None = None,
) -> Rows:
    """Decode blocks that were checked and unpacked.  Arguments as for ``decode_blocks``.

    Raises:
        CorruptionError: with path and offset; no block is returned.
    """
    _check_bounds(data, offsets, path)
    return _decode_stored(_Stored(data, offsets, compression, path, transformer, None, images), version)


def _decode_stored(stored: "_Stored", version: int) -> Rows:
    if not use_kernels():
        return rows_from_entries(list(_plain_entries(stored, version)))
    blocks = _opened(stored, version)
    try:
        return _decode(blocks)
    except CorruptionError as error:
        if not stored.is_image and error.offset is not None:
            stored.refuse(error.offset, error.message, blocks.bounds)
        raise


def decode_images(images: Sequence[bytes], places: I64, *, version: int, path: str) -> Rows:
    """Decode blocks that were checked and unpacked before.

    Args:
        images: of consecutive blocks.
        places: shape (n+1,), where each begins in the object, for errors, and where the last one ends.
        version: the block format, 1 or 2.
        path: the object's name, for errors.

    Raises:
        CorruptionError: with path and offset of the block; no block is returned.
    """
    if use_kernels():
        return _decode(images_as_blocks(images, places, version=version, path=path))
    entries: list[Entry] = []
    for place, image in zip(places.tolist(), images, strict=False):
        try:
            entries += decode_block_plain(image, version)
        except CorruptionError as error:
            raise CorruptionError(error.message, path=path, offset=place) from error
    return rows_from_entries(entries)


def open_blocks(
    data: BytesLike,
    offsets: I64,
    *,
    version: int,
    compression: Compression,
    path: str,
    transformer: BlockTransformer | None = None,
    image_max: int | None = None,
) -> "StoredBlocks":
    """Unpack blocks that lie back to back and leave rows in place.  Arguments as for ``decode_blocks``.

    Raises:
        CorruptionError: the blocks do not fit the data, or do not unpack.  Blocks without compression are not read.
    """
    _check_bounds(data, offsets, path)
    return _opened(_Stored(data, offsets, compression, path, transformer, image_max), version)


def stored_images(
    data: BytesLike, offsets: I64, *, version: int, path: str, visible: KeyRange = EVERYTHING
) -> "StoredBlocks":
    """Return blocks without compression and transformer that lie back to back.  Arguments as for ``decode_blocks``.

    Raises:
        CorruptionError: the blocks do not fit the data.
    """
    _check_bounds(data, offsets, path)
    return StoredBlocks(
        image=np.frombuffer(data, np.uint8),
        bounds=np.ascontiguousarray(offsets, np.int64),
        places=offsets,
        has_checksums=True,
        version=version,
        path=path,
        visible=visible,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StoredBlocks:
    """Blocks that lie back to back, without compression.

    Args:
        image: the bytes; 16 more follow the last block if there are no checksums.
        bounds: shape (n+1,), where each block begins, relative to the first, and where the last one ends.
        places: the same in the object, for errors.
        has_checksums: the last four bytes of each block are its CRC-32, not checked yet.
        version: the block format, 1 or 2.
        path: the object's name, for errors.
        visible: the keys of the rows to read.
    """

    image: U8
    bounds: I64
    places: I64
    has_checksums: bool
    version: int
    path: str
    visible: KeyRange = EVERYTHING

    @property
    def longest(self) -> int:
        """Bytes of the largest block, which no key exceeds."""
        return int((self.bounds[1:] - self.bounds[:-1]).max(initial=0))

    @property
    def is_empty(self) -> bool:
        """Whether there is no block."""
        return len(self.bounds) < 2


def _check_bounds(data: BytesLike, offsets: I64, path: str) -> None:
    if len(data) < int(offsets[-1] - offsets[0]) or (offsets[1:] <= offsets[:-1]).any():
        raise CorruptionError(f"blocks do not fit {len(data)} bytes", path=path, offset=int(offsets[0]))


class _Stored(NamedTuple):
    """Blocks as they are stored."""

    data: BytesLike
    offsets: I64
    compression: Compression
    path: str
    transformer: BlockTransformer | None
    image_max: int | None = None
    unpacked: Sequence[bytes] | None = None

    @property
    def is_image(self) -> bool:
        """Whether the stored form of a block is its image."""
        return self.compression is Compression.NONE and self.transformer is None

    def images(self) -> Iterator[tuple[int, BytesLike]]:
        """Yield the offset in the object and the checked, unpacked image of every block."""
        view = memoryview(self.data)
        bounds = self.offsets.tolist()
        if self.unpacked is not None:
            yield from zip(bounds, self.unpacked, strict=False)
            return
        for start, end in pairwise(bounds):
            section = view[start - bounds[0] : end - bounds[0]]
            image = open_section(
                section,
                self.compression,
                self.path,
                start,
                transformer=self.transformer,
                image_max=self.image_max,
            )
            yield start, image

    def refuse(self, place: int, reason: str, bounds: I64) -> None:
        """Remember the block at ``place`` of the object, which cannot be decoded, if its image is large.

        ``bounds``: of the images.
        """
        block = int(np.searchsorted(self.offsets[:-1], place, "right")) - 1
        if bounds[block + 1] - bounds[block] < REMEMBERED_BYTES_MIN:
            return
        start, end = (self.offsets[block : block + 2] - self.offsets[0]).tolist()
        checksum = int.from_bytes(memoryview(self.data)[end - _CRC_SIZE : end], "big")
        key = SectionKey(self.path, end - start, checksum, self.compression)
        REFUSED.add(key, reason, image_max=None, transformer=self.transformer)


def _opened(stored: _Stored, version: int) -> StoredBlocks:
    data, offsets, path = stored.data, stored.offsets, stored.path
    if stored.is_image:
        return stored_images(data, offsets, version=version, path=path)
    return images_as_blocks([bytes(image) for _, image in stored.images()], offsets, version=version, path=path)


def images_as_blocks(
    images: Sequence[bytes], places: I64, *, version: int, path: str, visible: KeyRange = EVERYTHING
) -> StoredBlocks:
    """Lay blocks that were checked and unpacked before side by side; arguments as for ``decode_images``."""
    bounds = np.zeros(len(images) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, images), np.int64, len(images)), out=bounds[1:])
    return StoredBlocks(
        image=np.frombuffer(b"".join((*images, bytes(16))), np.uint8),
        bounds=bounds,
        places=places,
        has_checksums=False,
        version=version,
        path=path,
        visible=visible,
    )


def _plain_entries(stored: _Stored, version: int) -> Iterator[Entry]:
    for offset, image in stored.images():
        try:
            yield from decode_block_plain(image, version)
        except CorruptionError as error:
            inside = error.offset if stored.is_image and error.offset is not None else 0
            raise CorruptionError(error.message, path=stored.path, offset=offset + inside) from error


def _decode(blocks: StoredBlocks) -> Rows:
    """Run the kernel, again with larger buffers if the first estimate was too small."""
    image, bounds = blocks.image, blocks.bounds
    size = int(bounds[-1] - bounds[0])
    spare = KEY_BYTES_SPARE + 16 * size
    rows_limit = size // _ROW_BYTES_MIN + 1
    rows_max = min(rows_limit, _rows_guess(image, bounds, blocks.version, _CRC_SIZE if blocks.has_checksums else 0))
    keys_max = max(size // 2, 1 << 16)
    out = np.zeros(3, np.int64)
    while True:
        buffers = ColumnBuffers(rows_max, keys_max, size)
        status = compiled.decode_blocks(
            address_of(image),
            address_of(bounds),
            len(bounds) - 1,
            blocks.version,
            int(blocks.has_checksums),
            spare,
            address_of(buffers.addresses),
            rows_max,
            keys_max,
            address_of(out),
        )
        block, inside, n_rows = out.tolist()
        if status == kernel.OK:
            return buffers.rows(0, n_rows)
        if status == kernel.NEED_ROWS:
            rows_max = rows_limit
        elif status == kernel.NEED_KEYS:
            keys_max = min(4 * keys_max, spare)
        else:
            place = int(blocks.places[block]) + (inside if blocks.has_checksums else 0)
            raise CorruptionError(kernel.MESSAGES[status], path=blocks.path, offset=place)


def _rows_guess(image: np.ndarray, offsets: I64, version: int, trailer_size: int) -> int:
    """Estimate the rows from the counts of offsets: exact in version 1, rounded up to restarts in version 2."""
    ends = offsets[1:] - offsets[0] - trailer_size
    ends = ends[ends >= 2]
    counts = image[ends - 2].astype(np.int64) << 8 | image[ends - 1]
    return int(counts.sum()) * (16 if version == 2 else 1) + 1
