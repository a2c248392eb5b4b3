"""Data blocks to rows in columns: many blocks per call by a kernel, a few by the plain codec.

Blocks are rows and a table of restart offsets (``block_plain`` tells the layout), compressed one by one, each with its
checksum behind it (docs/format.md 7 and 8).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from shale.errors import CorruptionError
from shale.format.block_plain import KEY_BYTES_SPARE, decode_block_plain
from shale.format.buffer import Buffer
from shale.format.section import open_section
from shale.format.transform import BlockTransformer
from shale.kernels.choice import use_kernels
from shale.kernels.rows import EMPTY_ROWS, I64, U8, Rows, rows_from_entries
from shale.types import EVERYTHING, Compression, Entry, KeyRange

_ROW_BYTES_MIN = 12
_CRC_SIZE = 4


def decode_blocks(
    data: Buffer,
    offsets: I64,
    *,
    version: int,
    compression: Compression,
    path: str,
    transformer: BlockTransformer | None = None,
) -> Rows:
    """Check, unpack and decode blocks that lie back to back.

    Args:
        data: the blocks as stored; its first byte is at ``offsets[0]`` of the object.
        offsets: shape (n+1,), where each block begins in the object, and where the last one ends.
        version: the block format, 1 or 2.
        compression: the codec of the file.
        path: the object's name, for errors.
        transformer: the one that the file was written with.

    Raises:
        CorruptionError: with path and offset; nothing is returned of any block then.
    """
    if len(offsets) < 2:
        return EMPTY_ROWS
    _check_bounds(data, offsets, path)
    if not use_kernels(len(data)):
        return rows_from_entries(list(_plain_entries(_Stored(data, offsets, compression, path, transformer), version)))
    return _decode(_opened(_Stored(data, offsets, compression, path, transformer), version))


def decode_images(images: Sequence[bytes], places: I64, *, version: int, path: str) -> Rows:
    """Decode blocks that were checked and unpacked before.

    Args:
        images: of consecutive blocks.
        places: shape (n+1,), where each begins in the object, for errors, and where the last one ends.
        version: the block format, 1 or 2.
        path: the object's name, for errors.

    Raises:
        CorruptionError: with path and offset of the block; nothing is returned of any block then.
    """
    if use_kernels(sum(map(len, images))):
        return _decode(images_as_blocks(images, places, version=version, path=path))
    entries: list[Entry] = []
    for place, image in zip(places.tolist(), images, strict=False):
        try:
            entries += decode_block_plain(image, version)
        except CorruptionError as error:
            raise CorruptionError(error.message, path=path, offset=place) from error
    return rows_from_entries(entries)


def open_blocks(
    data: Buffer,
    offsets: I64,
    *,
    version: int,
    compression: Compression,
    path: str,
    visible: KeyRange = EVERYTHING,
    transformer: BlockTransformer | None = None,
) -> "StoredBlocks":
    """Unpack blocks that lie back to back, for who reads rows where they lie.  Arguments as for ``decode_blocks``.

    Raises:
        CorruptionError: the blocks do not fit the data, or do not unpack.  Only what is compressed is looked into.
    """
    _check_bounds(data, offsets, path)
    return _opened(_Stored(data, offsets, compression, path, transformer), version, visible=visible)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StoredBlocks:
    """Blocks that lie back to back, without compression.

    Args:
        image: the bytes; with 16 more behind the last block if there are no checksums.
        bounds: shape (n+1,), where each block begins, relative to the first, and where the last one ends.
        places: the same in the object, for errors.
        has_checksums: the last four bytes of each block are its CRC-32, which nobody has checked yet.
        version: the block format, 1 or 2.
        path: the object's name, for errors.
        visible: rows with other keys are to be left out.
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
        """Bytes of the largest block: no key of it is longer."""
        return int((self.bounds[1:] - self.bounds[:-1]).max(initial=0))

    @property
    def is_empty(self) -> bool:
        """There is no block."""
        return len(self.bounds) < 2


def _check_bounds(data: Buffer, offsets: I64, path: str) -> None:
    if len(data) < int(offsets[-1] - offsets[0]) or (offsets[1:] <= offsets[:-1]).any():
        raise CorruptionError(f"blocks do not fit {len(data)} bytes", path=path, offset=int(offsets[0]))


class _Stored(NamedTuple):
    """Blocks as they are stored."""

    data: Buffer
    offsets: I64
    compression: Compression
    path: str
    transformer: BlockTransformer | None

    @property
    def is_image(self) -> bool:
        """Whether what is stored are the images themselves."""
        return self.compression is Compression.NONE and self.transformer is None

    def images(self) -> Iterator[tuple[int, Buffer]]:
        """Offset in the object and checked, unpacked image of every block."""
        view = memoryview(self.data)
        bounds = self.offsets.tolist()
        for start, end in pairwise(bounds):
            section = view[start - bounds[0] : end - bounds[0]]
            yield start, open_section(section, self.compression, self.path, start, transformer=self.transformer)


def _opened(stored: _Stored, version: int, *, visible: KeyRange = EVERYTHING) -> StoredBlocks:
    data, offsets = stored.data, stored.offsets
    if not stored.is_image:
        images = [bytes(image) for _, image in stored.images()]
        return images_as_blocks(images, offsets, version=version, path=stored.path, visible=visible)
    return StoredBlocks(
        image=np.frombuffer(data, np.uint8),
        bounds=np.ascontiguousarray(offsets, np.int64),
        places=offsets,
        has_checksums=True,
        version=version,
        path=stored.path,
        visible=visible,
    )


def images_as_blocks(
    images: Sequence[bytes], places: I64, *, version: int, path: str, visible: KeyRange = EVERYTHING
) -> StoredBlocks:
    """Blocks that were checked and unpacked before, side by side; arguments as for ``decode_images``."""
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
    """Run the kernel, with more room if the first guess was too small."""
    from shale.kernels import block_decode as kernel
    from shale.kernels.columns import ColumnBuffers, address_of

    image, bounds = blocks.image, blocks.bounds
    size = int(bounds[-1] - bounds[0])
    spare = KEY_BYTES_SPARE + 16 * size
    rows_limit = size // _ROW_BYTES_MIN + 1
    rows_max = min(rows_limit, _rows_guess(image, bounds, blocks.version, _CRC_SIZE if blocks.has_checksums else 0))
    keys_max = max(size // 2, 1 << 16)
    out = np.zeros(3, np.int64)
    while True:
        buffers = ColumnBuffers(rows_max, keys_max, size)
        status = kernel.decode_blocks(
            address_of(image),
            address_of(bounds),
            len(bounds) - 1,
            blocks.version,
            int(blocks.has_checksums),
            spare,
            buffers.addresses,
            rows_max,
            keys_max,
            out,
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


def _rows_guess(image: np.ndarray, offsets: I64, version: int, behind: int) -> int:
    """Rows by the counts of offsets: exact in version 1, rounded up to restarts in version 2."""
    ends = offsets[1:] - offsets[0] - behind
    ends = ends[ends >= 2]
    counts = image[ends - 2].astype(np.int64) << 8 | image[ends - 1]
    return int(counts.sum()) * (16 if version == 2 else 1) + 1
