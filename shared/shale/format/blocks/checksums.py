"""Checks the checksums of stored blocks, which costs a tenth of decoding them.

They are those of the stored bytes, so neither a codec nor a key is needed.
"""

from itertools import pairwise
from struct import Struct
from zlib import crc32

import numpy as np

from shale.core.bytes_like import BytesLike
from shale.errors import CorruptionError
from shale.format.blocks.section import CRC_SIZE
from shale.kernels.columns import address_of
from shale.kernels.dispatch import compiled, use_kernels
from shale.kernels.rows import I64

_CRC = Struct(">I")


def damaged_blocks(data: BytesLike, offsets: I64, path: str) -> list[int]:
    """Return the numbers of the blocks whose checksum is wrong.

    Args:
        data: the stored blocks, side by side.
        offsets: shape (n_blocks + 1,), where each block begins in the object, and where the last one ends.
        path: the object's name, for errors.

    Raises:
        CorruptionError: the offsets do not ascend, or do not fit the data.
    """
    count = len(offsets) - 1
    if len(data) < int(offsets[-1] - offsets[0]) or (offsets[1:] <= offsets[:-1]).any():
        raise CorruptionError(f"blocks do not fit {len(data)} bytes", path=path, offset=int(offsets[0]))
    if not use_kernels():
        return _damaged_blocks_plain(data, offsets)
    image, bounds = np.frombuffer(data, np.uint8), np.ascontiguousarray(offsets, np.int64)
    found: list[int] = []
    number = compiled.first_damaged_block(address_of(image), address_of(bounds), 0, count)
    while number < count:
        found.append(number)
        number = compiled.first_damaged_block(address_of(image), address_of(bounds), number + 1, count)
    return found


def _damaged_blocks_plain(data: BytesLike, offsets: I64) -> list[int]:
    view = memoryview(data)
    bounds = (offsets - offsets[0]).tolist()
    return [number for number, (start, end) in enumerate(pairwise(bounds)) if not _is_intact(view[start:end])]


def _is_intact(stored: memoryview) -> bool:
    size = len(stored) - CRC_SIZE
    return size >= 0 and crc32(stored[:size]) == _CRC.unpack_from(stored, size)[0]
