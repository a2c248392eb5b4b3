"""Kernel: data blocks to columns, many blocks per call (docs/format.md 7).

Every length is checked against the block before it is used.  The plain twin is ``shale.format.block_plain``.
"""

from typing import Any

import numpy as np

from shale.kernels.columns import (
    CREATE_TS,
    EXPIRE_TS,
    FLAGS,
    KEY_BYTES,
    KEY_OFFSETS,
    SEQ,
    VAL_BYTES,
    VAL_OFFSETS,
)
from shale.kernels.crc32 import crc32
from shale.kernels.jit import helper, kernel
from shale.kernels.memory import (
    copy,
    copy_loose,
    load_i64,
    load_u8,
    load_u16be,
    load_u32be,
    load_u64be,
    store_i64,
    store_u8,
    store_u64,
)

OK = 0
NEED_ROWS = 1
NEED_KEYS = 2
BAD_CHECKSUM = 3
BAD_COUNT = 4
BAD_ROW = 5
BAD_FLAGS = 6
MESSAGES = {
    BAD_CHECKSUM: "checksum mismatch",
    BAD_COUNT: "a block without rows, or with more offsets than bytes",
    BAD_ROW: "a row does not fit its block",
    BAD_FLAGS: "invalid row flags",
}

OUT_BLOCK = 0
OUT_OFFSET = 1
OUT_ROWS = 2

VARINT_BAD = -1
"""See ``read_varint``."""


@helper
def read_varint(at: int, end: int) -> int:
    """Value << 3 | bytes used, or -1 if it runs past ``end`` or over 32 bits."""
    value = 0
    for used in range(5):
        if at + used >= end:
            return VARINT_BAD
        byte = load_u8(at + used)
        value |= (byte & 0x7F) << (7 * used)
        if byte < 0x80:
            if value >> 32:
                return VARINT_BAD
            return value << 3 | (used + 1)
    return VARINT_BAD


@kernel("int64(int64, int64, int64, int64, int64, int64, int64[::1], int64, int64, int64[::1])")
def decode_blocks(
    data: int,
    offsets: int,
    n_blocks: int,
    version: int,
    has_checksums: int,
    spare: int,
    columns: Any,
    rows_max: int,
    keys_max: int,
    out: Any,
) -> int:
    """Decode blocks that lie back to back.

    Args:
        data: address of the first block.
        offsets: address of i64 (n_blocks + 1), ascending; relative to the first.
        n_blocks: how many.
        version: 1 or 2.
        has_checksums: 1: the last four bytes of each block are its CRC-32; it is checked.
        spare: bytes that all keys together may have.
        columns: where rows go, with slack behind the byte columns; the value column has room for all input.
        rows_max: room for rows.
        keys_max: room for key bytes.
        out: the block and the offset in it where decoding stopped; rows written.

    Returns:
        one of the codes above.
    """
    key_bytes = columns[KEY_BYTES]
    key_offsets = columns[KEY_OFFSETS]
    val_bytes = columns[VAL_BYTES]
    val_offsets = columns[VAL_OFFSETS]
    seqs = columns[SEQ]
    all_flags = columns[FLAGS]
    create_ts = columns[CREATE_TS]
    expire_ts = columns[EXPIRE_TS]
    base = load_i64(offsets)
    rows = 0
    key_at = 0
    val_at = 0
    for block in range(n_blocks):
        out[OUT_BLOCK] = block
        out[OUT_OFFSET] = 0
        out[OUT_ROWS] = rows
        start = data + load_i64(offsets + 8 * block) - base
        stop = data + load_i64(offsets + 8 * block + 8) - base
        if has_checksums:
            stop -= 4
            if stop < start or crc32(start, stop - start) != load_u32be(stop):
                return BAD_CHECKSUM
        if stop - start < 2:
            return BAD_COUNT
        count = load_u16be(stop - 2)
        end = stop - 2 - 2 * count
        if count == 0 or end <= start:
            return BAD_COUNT
        at = start
        base_key = key_at
        base_len = 0
        while at < end:
            out[OUT_OFFSET] = at - start
            if rows >= rows_max:
                return NEED_ROWS
            if version == 2:
                shared = load_u8(at)
                head = at + 3
                if head > end:
                    return BAD_ROW
                suffix = load_u8(at + 1)
                value_len = load_u8(at + 2)
                if (shared | suffix | value_len) >= 0x80:
                    head = at
                    word = read_varint(head, end)
                    if word == VARINT_BAD:
                        return BAD_ROW
                    shared = word >> 3
                    head += word & 7
                    word = read_varint(head, end)
                    if word == VARINT_BAD:
                        return BAD_ROW
                    suffix = word >> 3
                    head += word & 7
                    word = read_varint(head, end)
                    if word == VARINT_BAD:
                        return BAD_ROW
                    value_len = word >> 3
                    head += word & 7
                tail = head + suffix + value_len
            else:
                if at + 4 > end:
                    return BAD_ROW
                shared = load_u16be(at)
                suffix = load_u16be(at + 2)
                value_len = 0
                head = at + 4
                tail = head + suffix
            if tail + 9 > end or shared > base_len:
                return BAD_ROW
            key_len = shared + suffix
            if key_at + key_len > keys_max:
                return BAD_ROW if key_at + key_len > spare else NEED_KEYS
            copy_loose(key_bytes + key_at, key_bytes + base_key, shared)
            copy_loose(key_bytes + key_at + shared, head, suffix)
            if version == 2 or at == start:
                base_key = key_at
                base_len = key_len
            key_at += key_len
            flags = load_u8(tail + 8)
            if flags > 15 or (flags & 9) == 9:
                return BAD_FLAGS
            store_u64(seqs + 8 * rows, load_u64be(tail))
            at = tail + 9
            expires = np.int64(0)
            created = np.int64(0)
            if flags & 6:
                stamps = 8 * ((flags >> 1 & 1) + (flags >> 2 & 1))
                if at + stamps > end:
                    return BAD_ROW
                if flags & 2:
                    expires = np.int64(load_u64be(at))
                    at += 8
                if flags & 4:
                    created = np.int64(load_u64be(at))
                    at += 8
            value = head + suffix
            if flags & 1:
                value_len = 0
                if version == 1:
                    flags &= 13
                    expires = np.int64(0)
            elif version == 1:
                if at + 4 > end:
                    return BAD_ROW
                value_len = load_u32be(at)
                value = at + 4
                at = value + value_len
                if at > end:
                    return BAD_ROW
            if version == 2:
                copy_loose(val_bytes + val_at, value, value_len)
            else:  # the very last value has too little behind it for overshooting
                copy(val_bytes + val_at, value, value_len)
            val_at += value_len
            store_u8(all_flags + rows, flags)
            store_i64(expire_ts + 8 * rows, expires)
            store_i64(create_ts + 8 * rows, created)
            rows += 1
            store_i64(key_offsets + 8 * rows, key_at)
            store_i64(val_offsets + 8 * rows, val_at)
    out[OUT_ROWS] = rows
    return OK
