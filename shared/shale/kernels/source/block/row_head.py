"""Part of kernels: the head of a row in a block of version 2 (docs/reference/format.md 7.1).

Every kernel that reads blocks parses rows with it: decoding into columns, cursors and point lookups.
"""

from typing import Any

from shale.kernels.source.jit import helper, inlined
from shale.kernels.source.memory import load_u8

_TAIL_BYTES_MIN = 9
"""Sequence number and flags follow the value."""
BAD_VARINT = -1


@helper
def read_varint(at: int, end: int) -> int:
    """Return value << 3 | bytes used; ``BAD_VARINT`` if the number runs past ``end`` or over 32 bits."""
    value = 0
    for used in range(5):
        if at + used >= end:
            return BAD_VARINT
        byte = load_u8(at + used)
        value |= (byte & 0x7F) << (7 * used)
        if byte < 0x80:
            if value >> 32:
                return BAD_VARINT
            return value << 3 | (used + 1)
    return BAD_VARINT


@helper
def _read_long_head(at: int, end: int) -> Any:
    """``read_row_head`` for lengths of several bytes."""
    head = at
    varint = read_varint(head, end)
    if varint == BAD_VARINT:
        return -1, 0, 0, at
    shared = varint >> 3
    head += varint & 7
    varint = read_varint(head, end)
    if varint == BAD_VARINT:
        return -1, 0, 0, at
    suffix = varint >> 3
    head += varint & 7
    varint = read_varint(head, end)
    if varint == BAD_VARINT:
        return -1, 0, 0, at
    value_len = varint >> 3
    head += varint & 7
    if head + suffix + value_len + _TAIL_BYTES_MIN > end:
        return -1, 0, 0, at
    return shared, suffix, value_len, head


@inlined
def read_row_head(at: int, end: int) -> Any:
    """Return what a row says of its key and value.

    Args:
        at: address of the row.
        end: address where the rows of the block end.

    Returns:
        The bytes shared with the key before, the bytes of the suffix, those of the value, and the address of the
        suffix.  The first is -1 if the row does not fit the block.
    """
    if at + 3 <= end:
        shared = load_u8(at)
        suffix = load_u8(at + 1)
        value_len = load_u8(at + 2)
        if (shared | suffix | value_len) < 0x80:
            if at + 3 + suffix + value_len + _TAIL_BYTES_MIN > end:
                return -1, 0, 0, at
            return shared, suffix, value_len, at + 3
    return _read_long_head(at, end)
