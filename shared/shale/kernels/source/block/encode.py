"""Kernel: columns to data blocks of version 2, many per call (docs/reference/format.md 7.2).

A block that is not full stays open at the end of the output and the next call goes on with it.  The plain twin is
``shale.format.blocks.plain``.
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
from shale.kernels.layout.encoder import (
    AT,
    BLOCK_ROWS,
    BLOCK_START,
    BLOCK_WORDS,
    BLOCKS,
    BY_KEY,
    BY_SEQ,
    DELETES,
    DONE,
    ENDED,
    FULL,
    LIMIT,
    MERGES,
    NEED,
    NEED_OUTPUT_SPACE,
    OUT_OF_ORDER,
    PUTS,
    RESTART_INTERVAL,
    RESTARTS,
    ROW,
    SEPARATORS_AT,
)
from shale.kernels.source.crc32 import crc32
from shale.kernels.source.jit import helper, inlined, kernel
from shale.kernels.source.memory import (
    add_word,
    copy,
    copy_loose,
    leading_zeros,
    load_i64,
    load_u8,
    load_u64,
    load_u64be,
    set_word,
    store_i64,
    store_u8,
    store_u16be,
    store_u32be,
    store_u64be,
    word,
)


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


@inlined
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


@kernel("void(i64, i64, i64, i64, i64)")
def end_block(state: int, out: int, restarts: int, table: int, has_checksums: int) -> None:
    """Write offsets, count and checksum of the open block and note it in the table of blocks."""
    at = out + word(state, AT)
    for number in range(word(state, RESTARTS)):
        store_u16be(at, load_i64(restarts + 8 * number))
        at += 2
    store_u16be(at, word(state, RESTARTS))
    at += 2
    if has_checksums:
        start = out + word(state, BLOCK_START)
        store_u32be(at, crc32(start, at - start))
        at += 4
    set_word(state, AT, at - out)
    row = table + 8 * BLOCK_WORDS * word(state, ENDED)
    store_i64(row, word(state, AT))
    store_i64(row + 8, word(state, PUTS))
    store_i64(row + 16, word(state, DELETES))
    store_i64(row + 24, word(state, MERGES))
    add_word(state, ENDED, 1)
    set_word(state, BLOCK_START, word(state, AT))
    set_word(state, BLOCK_ROWS, 0)
    set_word(state, RESTARTS, 0)
    set_word(state, PUTS, 0)
    set_word(state, DELETES, 0)
    set_word(state, MERGES, 0)


@inlined
def make_room(
    state: int,
    out: int,
    out_max: int,
    restarts: int,
    target: int,
    table: int,
    has_checksums: int,
    key_len: int,
    common: int,
    value_len: int,
    tail_len: int,
) -> bool:
    """End the open block if the next row belongs into another one.

    Args:
        state, out, out_max, restarts, target, table, has_checksums: see ``encode_blocks``.
        key_len: of the row.
        common: bytes that its key shares with the one before.
        value_len: of its value.
        tail_len: of value, sequence number, flags and times.

    Returns:
        Whether the row fits the output; if not, ``state[NEED]`` is the size that it needs.
    """
    restart = word(state, BLOCK_ROWS) & (RESTART_INTERVAL - 1) == 0
    shared = 0 if restart else common
    size = tail_len + _varint_size(value_len) + _varint_size(shared) + _varint_size(key_len - shared) + key_len - shared
    grown = word(state, AT) - word(state, BLOCK_START) + size + 2 * (word(state, RESTARTS) + restart) + 2
    needed = grown + key_len + 32  # also if the row ends the block and begins the next one, in full
    if word(state, BLOCK_START) + needed > out_max:
        set_word(state, NEED, needed)
        return False
    if word(state, BLOCK_ROWS) > 0 and grown > target:
        end_block(state, out, restarts, table, has_checksums)
    return True


@inlined
def note_block(state: int, separators: int, separator_ends: int, key: int, separator_len: int) -> None:
    """Note the index key of a block that begins."""
    copy(separators + word(state, SEPARATORS_AT), key, separator_len)
    add_word(state, SEPARATORS_AT, separator_len)
    store_i64(separator_ends + 8 * word(state, BLOCKS), word(state, SEPARATORS_AT))
    add_word(state, BLOCKS, 1)


@inlined
def put_head(state: int, out: int, restarts: int, key: int, key_len: int, common: int, value_len: int) -> int:
    """Write the lengths and the key of a row and return where its value goes."""
    shared = common
    if word(state, BLOCK_ROWS) & (RESTART_INTERVAL - 1) == 0:
        shared = 0
        store_i64(restarts + 8 * word(state, RESTARTS), word(state, AT) - word(state, BLOCK_START))
        add_word(state, RESTARTS, 1)
    suffix = key_len - shared
    at = out + word(state, AT)
    if (shared | suffix | value_len) < 0x80:
        store_u8(at, shared)
        store_u8(at + 1, suffix)
        store_u8(at + 2, value_len)
        at += 3
    else:
        at = _put_varint(at, shared)
        at = _put_varint(at, suffix)
        at = _put_varint(at, value_len)
    copy(at, key + shared, suffix)
    return at + suffix


@inlined
def put_number_and_flags(at: int, seq: Any, flags: int) -> int:
    """Write what follows a value, up to the times."""
    store_u64be(at, seq)
    store_u8(at + 8, flags)
    return at + 9


@inlined
def count_row(state: int, end: int, flags: int) -> None:
    """The row that ends at byte ``end`` of the output is written."""
    set_word(state, AT, end)
    add_word(state, BLOCK_ROWS, 1)
    if flags & 1:
        add_word(state, DELETES, 1)
    elif flags & 8:
        add_word(state, MERGES, 1)
    else:
        add_word(state, PUTS, 1)


@kernel("i64(i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64)")
def encode_blocks(
    columns: int,
    n_rows: int,
    state: int,
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
        state: address of the state; see the words above.
        previous: address of the key before row 0, where a block is open or keys must ascend.
        previous_len: its length; -1: there is none.
        out: address of the output, ``out_max`` bytes and slack.
        out_max: see ``out``.
        restarts: address of i64 (restarts_max(target)): restart offsets of the open block.
        target: block size in bytes without the checksum.
        has_checksums: 1: blocks end with their CRC-32.
        separators: address for the index keys of blocks begun in this call; holds all keys and 8 bytes a row.
        separator_ends: address of i64 (n_rows): where each index key ends.
        table: address of i64 (n_rows + 1, BLOCK_WORDS): blocks ended in this call.
        order: what index keys are.

    Returns:
        ``DONE``; ``NEED_OUTPUT_SPACE``: move the open block to a larger or emptier output and call again;
        ``OUT_OF_ORDER``: ``state[ROW]`` is not above the row before it; ``FULL``: see ``LIMIT``.
    """
    key_bytes = word(columns, KEY_BYTES)
    val_bytes = word(columns, VAL_BYTES)
    val_end = val_bytes + load_i64(word(columns, VAL_OFFSETS) + 8 * n_rows)
    row = word(state, ROW)
    if row > 0:
        key_start = load_i64(word(columns, KEY_OFFSETS) + 8 * row - 8)
        previous = key_bytes + key_start
        previous_len = load_i64(word(columns, KEY_OFFSETS) + 8 * row) - key_start
    while row < n_rows:
        key_start = load_i64(word(columns, KEY_OFFSETS) + 8 * row)
        key_len = load_i64(word(columns, KEY_OFFSETS) + 8 * row + 8) - key_start
        key = key_bytes + key_start
        val_start = load_i64(word(columns, VAL_OFFSETS) + 8 * row)
        value_len = load_i64(word(columns, VAL_OFFSETS) + 8 * row + 8) - val_start
        flags = load_u8(word(columns, FLAGS) + row)
        common = 0
        if previous_len >= 0:
            common = shared_len(previous, key, min(previous_len, key_len))
            if order == BY_KEY:
                if common == key_len:
                    if previous_len > key_len or (row > 0 and not _descends(word(columns, SEQ), row)):
                        set_word(state, ROW, row)
                        return OUT_OF_ORDER
                elif common < previous_len and load_u8(previous + common) > load_u8(key + common):
                    set_word(state, ROW, row)
                    return OUT_OF_ORDER
        if word(state, BLOCK_START) > word(state, LIMIT) and not (common == key_len and common == previous_len):
            set_word(state, ROW, row)
            return FULL
        tail_len = value_len + 9 + 8 * ((flags >> 1 & 1) + (flags >> 2 & 1))
        if not make_room(
            state, out, out_max, restarts, target, table, has_checksums, key_len, common, value_len, tail_len
        ):
            set_word(state, ROW, row)
            return NEED_OUTPUT_SPACE
        if word(state, BLOCK_ROWS) == 0:
            if order == BY_SEQ:
                store_u64be(separators + word(state, SEPARATORS_AT), load_u64(word(columns, SEQ) + 8 * row))
                add_word(state, SEPARATORS_AT, 8)
                note_block(state, separators, separator_ends, key, 0)
            else:
                note_block(state, separators, separator_ends, key, min(common + 1, key_len) * (previous_len >= 0))
        at = put_head(state, out, restarts, key, key_len, common, value_len)
        value = val_bytes + val_start
        if value + value_len + SLACK <= val_end:
            copy_loose(at, value, value_len)
        else:
            copy(at, value, value_len)
        at = put_number_and_flags(at + value_len, load_u64(word(columns, SEQ) + 8 * row), flags)
        if flags & 2:
            store_u64be(at, load_u64(word(columns, EXPIRE_TS) + 8 * row))
            at += 8
        if flags & 4:
            store_u64be(at, load_u64(word(columns, CREATE_TS) + 8 * row))
            at += 8
        count_row(state, at - out, flags)
        previous = key
        previous_len = key_len
        row += 1
    set_word(state, ROW, row)
    return DONE
