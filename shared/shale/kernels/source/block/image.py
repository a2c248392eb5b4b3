"""Kernels: take a stored block into memory, so that lookup kernels find it (docs/reference/format.md 8)."""

from shale.kernels.layout.point_lookup import CORRUPT
from shale.kernels.source.crc32 import crc32
from shale.kernels.source.jit import kernel
from shale.kernels.source.memory import load_u32be, set_word
from shale.kernels.source.python_objects import IS_BYTES

_CRC_BYTES = 4


@kernel("answer(i64, i64)", holds_lock=True)
def open_image(stored: int, size: int, answer: int) -> None:
    """Answer the image of an uncompressed section, or ``CORRUPT`` if its checksum is wrong.

    Args:
        stored: address of the section with its checksum.
        size: its bytes.
        answer: see ``objects``.
    """
    image_size = size - _CRC_BYTES
    is_intact = image_size >= 0 and crc32(stored, image_size) == load_u32be(stored + image_size)
    set_word(answer, 0, IS_BYTES if is_intact else CORRUPT)
    set_word(answer, 1, stored)
    set_word(answer, 2, image_size)


@kernel("void(key, i64, i64)", holds_lock=True)
def put_image(image: int, image_size: int, table: int, block: int) -> None:
    """Write address and size of the image of a block, which stays alive, into the block table of a slot."""
    set_word(table, 2 * block, image)
    set_word(table, 2 * block + 1, image_size)
