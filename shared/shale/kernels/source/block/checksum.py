"""Kernel: check the checksums of stored blocks without decoding them (docs/reference/format.md 8)."""

from shale.kernels.source.crc32 import crc32
from shale.kernels.source.jit import kernel
from shale.kernels.source.memory import load_u32be, word

_CRC_BYTES = 4


@kernel("i64(i64, i64, i64, i64)")
def first_damaged_block(stored: int, offsets: int, first: int, count: int) -> int:
    """Return the number of the first block from ``first`` on whose checksum is wrong; ``count`` if all are right.

    Args:
        stored: address of the blocks, side by side, each with its checksum.
        offsets: address of i64 (count + 1,): where each block begins, and where the last one ends, in an object.
        first: the block to begin with.
        count: how many blocks.
    """
    base = word(offsets, 0)
    for number in range(first, count):
        start = stored + word(offsets, number) - base
        end = stored + word(offsets, number + 1) - base - _CRC_BYTES
        if end < start or crc32(start, end - start) != load_u32be(end):
            return number
    return count
