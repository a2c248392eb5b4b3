"""Kernel: data blocks to columns, many blocks per call (docs/reference/format.md 7).

Every length is checked against the block before it is used.  The plain twin is ``shale.format.blocks.plain``.
"""

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
from shale.kernels.layout.decoder import (
    BAD_CHECKSUM,
    BAD_COUNT,
    BAD_FLAGS,
    BAD_ROW,
    NEED_KEYS,
    NEED_ROWS,
    OK,
    OUT_BLOCK,
    OUT_OFFSET,
    OUT_ROWS,
)
from shale.kernels.source.block.row_head import read_row_head
from shale.kernels.source.crc32 import crc32
from shale.kernels.source.jit import kernel
from shale.kernels.source.memory import (
    copy,
    copy_loose,
    load_i64,
    load_u8,
    load_u16be,
    load_u32be,
    load_u64be,
    set_word,
    store_i64,
    store_u8,
    store_u64,
    word,
)


@kernel("i64(i64, i64, i64, i64, i64, i64, i64, i64, i64, i64)")
def decode_blocks(
    data: int,
    offsets: int,
    n_blocks: int,
    version: int,
    has_checksums: int,
    spare: int,
    columns: int,
    rows_max: int,
    keys_max: int,
    out: int,
) -> int:
    """Decode blocks that lie back to back.

    Args:
        data: address of the first block.
        offsets: address of i64 (n_blocks + 1), ascending; relative to the first.
        n_blocks: how many.
        version: 1 or 2.
        has_checksums: 1: the last four bytes of each block are its CRC-32; it is checked.
        spare: limit of the bytes of all keys.
        columns: the columns to write, with slack after the byte columns; the value column holds all input.
        rows_max: capacity in rows.
        keys_max: capacity in key bytes.
        out: the block and the offset in it where decoding stopped; rows written.

    Returns:
        One of the codes above.
    """
    key_bytes = word(columns, KEY_BYTES)
    key_offsets = word(columns, KEY_OFFSETS)
    val_bytes = word(columns, VAL_BYTES)
    val_offsets = word(columns, VAL_OFFSETS)
    seqs = word(columns, SEQ)
    all_flags = word(columns, FLAGS)
    create_ts = word(columns, CREATE_TS)
    expire_ts = word(columns, EXPIRE_TS)
    base = load_i64(offsets)
    rows = 0
    key_at = 0
    val_at = 0
    for block in range(n_blocks):
        set_word(out, OUT_BLOCK, block)
        set_word(out, OUT_OFFSET, 0)
        set_word(out, OUT_ROWS, rows)
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
            set_word(out, OUT_OFFSET, at - start)
            if rows >= rows_max:
                return NEED_ROWS
            if version == 2:
                shared, suffix, value_len, head = read_row_head(at, end)
                if shared < 0:
                    return BAD_ROW
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
            else:  # too few bytes follow the last value for ``copy_loose``
                copy(val_bytes + val_at, value, value_len)
            val_at += value_len
            store_u8(all_flags + rows, flags)
            store_i64(expire_ts + 8 * rows, expires)
            store_i64(create_ts + 8 * rows, created)
            rows += 1
            store_i64(key_offsets + 8 * rows, key_at)
            store_i64(val_offsets + 8 * rows, val_at)
    set_word(out, OUT_ROWS, rows)
    return OK
