"""Kernel: columns to data blocks of version 2, many per call (docs/format.md 7.2).

A block that is not full stays open at the end of the output and the next call goes on with it.  The plain twin is
``shale.format.block_plain``.
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
    SLACK,
    VAL_BYTES,
    VAL_OFFSETS,
)
from shale.kernels.crc32 import crc32
from shale.kernels.jit import helper, kernel
from shale.kernels.memory import (
    copy,
    copy_loose,
    leading_zeros,
    load_i64,
    load_u8,
    load_u64,
    load_u64be,
    store_i64,
    store_u8,
    store_u16be,
    store_u32be,
    store_u64be,
)

DONE = 0
NEED_ROOM = 1
OUT_OF_ORDER = 2
FULL = 3

# The words of the state.
AT = 0
"""Bytes of the output in use."""
BLOCK_START = 1
BLOCK_ROWS = 2
RESTARTS = 3
ROW = 4
"""The next row of the input."""
BLOCKS = 5
"""Blocks begun in this call."""
ENDED = 6
"""Blocks ended in this call."""
SEPARATORS_AT = 7
"""Bytes of separators written in this call."""
PUTS = 8
"""Of the open block, as the next two."""
DELETES = 9
MERGES = 10
NEED = 11
"""With ``NEED_ROOM``: bytes that the open block and the next row take."""
LIMIT = 12
"""Stop before a new key once ended blocks take more than this many bytes of the output."""
STATE_WORDS = 13

# Words per block in the table of blocks.
BLOCK_END = 0
BLOCK_PUTS = 1
BLOCK_DELETES = 2
BLOCK_MERGES = 3
BLOCK_WORDS = 4

RESTART_INTERVAL = 16
BY_KEY = 0
"""Index keys are the shortest separators (compacted SSTs); rows must be in order."""
BY_SEQ = 1
"""Index keys are sequence numbers (WAL); keys are in any order."""


def restarts_max(target: int) -> int:
    """Restarts that fit into a block: 16 rows take at least 192 bytes."""
    return target // 192 + 2


@helper
def shared_len(left: int, right: int, most: int) -> int:
    """Length of the common prefix of two byte strings that both have ``most`` bytes."""
    at = 0
    while most - at >= 8:
        difference = load_u64be(left + at) ^ load_u64be(right + at)
        if difference != np.uint64(0):
            return at + leading_zeros(difference) // 8
        at += 8
    while at < most and load_u8(left + at) == load_u8(right + at):
        at += 1
    return at


@helper
def _varint_size(value: int) -> int:
    size = 1
    while value >= 0x80:
        value >>= 7
        size += 1
    return size


@helper
def _put_varint(at: int, value: int) -> int:
    while value >= 0x80:
        store_u8(at, value & 0x7F | 0x80)
        value >>= 7
        at += 1
    store_u8(at, value)
    return at + 1


@helper
def _descends(seqs: int, row: int) -> bool:
    return load_u64(seqs + 8 * row) < load_u64(seqs + 8 * row - 8)


@kernel("void(int64[::1], int64, int64, int64, int64)")
def end_block(state: Any, out: int, restarts: int, table: int, has_checksums: int) -> None:
    """Write offsets, count and checksum of the open block and note it in the table of blocks."""
    at = out + state[AT]
    for number in range(state[RESTARTS]):
        store_u16be(at, load_i64(restarts + 8 * number))
        at += 2
    store_u16be(at, state[RESTARTS])
    at += 2
    if has_checksums:
        start = out + state[BLOCK_START]
        store_u32be(at, crc32(start, at - start))
        at += 4
    state[AT] = at - out
    row = table + 8 * BLOCK_WORDS * state[ENDED]
    store_i64(row, state[AT])
    store_i64(row + 8, state[PUTS])
    store_i64(row + 16, state[DELETES])
    store_i64(row + 24, state[MERGES])
    state[ENDED] += 1
    state[BLOCK_START] = state[AT]
    state[BLOCK_ROWS] = 0
    state[RESTARTS] = 0
    state[PUTS] = 0
    state[DELETES] = 0
    state[MERGES] = 0


@kernel(
    "int64(int64[::1], int64, int64[::1], int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, int64)"
)
def encode_blocks(
    columns: Any,
    n_rows: int,
    state: Any,
    previous: int,
    previous_len: int,
    out: int,
    out_max: int,
    restarts: int,
    target: int,
    has_checksums: int,
    separators: int,
    separator_ends: int,
    table: int,
    order: int,
) -> int:
    """Append rows ``state[ROW]`` and following.

    Args:
        columns: the rows.
        n_rows: how many there are in all.
        state: see the words above.
        previous: address of the key before row 0, where a block is open or keys must ascend.
        previous_len: its length; -1: there is none.
        out: address of the output, ``out_max`` bytes and slack.
        out_max: see ``out``.
        restarts: address of i64 (restarts_max(target)): restart offsets of the open block.
        target: block size in bytes without the checksum.
        has_checksums: 1: blocks end with their CRC-32.
        separators: address for the index keys of blocks begun in this call, room for all keys and 8 bytes a row.
        separator_ends: address of i64 (n_rows): where each index key ends.
        table: address of i64 (n_rows + 1, BLOCK_WORDS): blocks ended in this call.
        order: what index keys are.

    Returns:
        ``DONE``; ``NEED_ROOM``: move the open block to a larger or emptier output and call again;
        ``OUT_OF_ORDER``: ``state[ROW]`` is not above the row before it; ``FULL``: see ``LIMIT``.
    """
    key_bytes = columns[KEY_BYTES]
    val_bytes = columns[VAL_BYTES]
    val_end = val_bytes + load_i64(columns[VAL_OFFSETS] + 8 * n_rows)
    row = state[ROW]
    if row > 0:
        key_start = load_i64(columns[KEY_OFFSETS] + 8 * row - 8)
        previous = key_bytes + key_start
        previous_len = load_i64(columns[KEY_OFFSETS] + 8 * row) - key_start
    while row < n_rows:
        key_start = load_i64(columns[KEY_OFFSETS] + 8 * row)
        key_len = load_i64(columns[KEY_OFFSETS] + 8 * row + 8) - key_start
        key = key_bytes + key_start
        val_start = load_i64(columns[VAL_OFFSETS] + 8 * row)
        value_len = load_i64(columns[VAL_OFFSETS] + 8 * row + 8) - val_start
        flags = load_u8(columns[FLAGS] + row)
        common = 0
        if previous_len >= 0:
            common = shared_len(previous, key, min(previous_len, key_len))
            if order == BY_KEY:
                if common == key_len:
                    if previous_len > key_len or (row > 0 and not _descends(columns[SEQ], row)):
                        state[ROW] = row
                        return OUT_OF_ORDER
                elif common < previous_len and load_u8(previous + common) > load_u8(key + common):
                    state[ROW] = row
                    return OUT_OF_ORDER
        if state[BLOCK_START] > state[LIMIT] and not (common == key_len and common == previous_len):
            state[ROW] = row
            return FULL
        restart = state[BLOCK_ROWS] & (RESTART_INTERVAL - 1) == 0
        shared = 0 if restart else common
        fixed = value_len + _varint_size(value_len) + 9 + 8 * ((flags >> 1 & 1) + (flags >> 2 & 1))
        size = fixed + _varint_size(shared) + _varint_size(key_len - shared) + key_len - shared
        grown = state[AT] - state[BLOCK_START] + size + 2 * (state[RESTARTS] + restart) + 2
        room = grown + key_len + 32  # also if the row ends the block and begins the next one, in full
        if state[BLOCK_START] + room > out_max:
            state[ROW] = row
            state[NEED] = room
            return NEED_ROOM
        if state[BLOCK_ROWS] > 0 and grown > target:
            end_block(state, out, restarts, table, has_checksums)
        if state[BLOCK_ROWS] == 0:
            restart = True
            shared = 0
            at = separators + state[SEPARATORS_AT]
            if order == BY_SEQ:
                store_u64be(at, load_u64(columns[SEQ] + 8 * row))
                state[SEPARATORS_AT] += 8
            elif previous_len >= 0:
                separator_len = min(common + 1, key_len)
                copy(at, key, separator_len)
                state[SEPARATORS_AT] += separator_len
            store_i64(separator_ends + 8 * state[BLOCKS], state[SEPARATORS_AT])
            state[BLOCKS] += 1
        if restart:
            store_i64(restarts + 8 * state[RESTARTS], state[AT] - state[BLOCK_START])
            state[RESTARTS] += 1
        at = _put_varint(out + state[AT], shared)
        at = _put_varint(at, key_len - shared)
        at = _put_varint(at, value_len)
        copy(at, key + shared, key_len - shared)
        at += key_len - shared
        value = val_bytes + val_start
        if value + value_len + SLACK <= val_end:
            copy_loose(at, value, value_len)
        else:
            copy(at, value, value_len)
        at += value_len
        store_u64be(at, load_u64(columns[SEQ] + 8 * row))
        store_u8(at + 8, flags)
        at += 9
        if flags & 2:
            store_u64be(at, load_u64(columns[EXPIRE_TS] + 8 * row))
            at += 8
        if flags & 4:
            store_u64be(at, load_u64(columns[CREATE_TS] + 8 * row))
            at += 8
        state[AT] = at - out
        state[BLOCK_ROWS] += 1
        if flags & 1:
            state[DELETES] += 1
        elif flags & 8:
            state[MERGES] += 1
        else:
            state[PUTS] += 1
        previous = key
        previous_len = key_len
        row += 1
    state[ROW] = row
    return DONE
