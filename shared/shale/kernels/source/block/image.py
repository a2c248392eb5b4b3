"""Kernels: take a stored block into memory, so that lookup kernels find it (docs/reference/format.md 8)."""

from shale.kernels.layout.point_lookup import CORRUPT
from shale.kernels.source.crc32 import crc32
from shale.kernels.source.jit import kernel
from shale.kernels.source.memory import load_u32be, set_word, word
from shale.kernels.source.python_objects import IS_BYTES, new_bytes, put

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


@kernel("count(object, i64, i64, i64)", holds_lock=True)
def open_images(images: int, count: int, stored: int, bounds: int) -> int:
    """Put the images of uncompressed sections into a list, up to the first one whose checksum is wrong.

    Args:
        images: the list, with ``count`` places.
        count: how many sections.
        stored: address of the bytes that hold them.
        bounds: address of i64 (count, 2): where each begins there and ends, with its checksum.

    Returns:
        how many images were put.
    """
    for number in range(count):
        start = stored + word(bounds, 2 * number)
        end = stored + word(bounds, 2 * number + 1) - _CRC_BYTES
        if end < start or crc32(start, end - start) != load_u32be(end):
            return number
        image = new_bytes(start, end - start)
        if image == 0 or put(images, number, image) != 0:
            return -1
    return count


@kernel("void(key, i64, i64)", holds_lock=True)
def put_image(image: int, image_size: int, table: int, block: int) -> None:
    """Write address and size of the image of a block, which stays alive, into the block table of a slot."""
    set_word(table, 2 * block, image)
    set_word(table, 2 * block + 1, image_size)
