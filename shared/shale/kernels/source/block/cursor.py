"""Parts of kernels: a cursor over the rows of stored blocks, which are read in place (docs/reference/format.md 7).

A cursor is a row of words at an address.  It checks every length against its block before it uses it, and the checksum
of a block when it opens it.  The key of its row is in a buffer of its own, the value stays in the block.
"""

import numpy as np

from shale.kernels.columns import SLACK
from shale.kernels.layout.cursor import (
    AHEAD,
    BASE_KEY,
    BASE_LEN,
    BLOCK,
    BLOCK_ROWS,
    BLOCKS,
    BOUNDS,
    CREATED,
    DATA,
    DATA_END,
    END,
    END_HIGH,
    END_LEN,
    END_LOW,
    FLAGS,
    HAS_CHECKSUMS,
    HIGH,
    IS_PAST_END,
    KEY,
    KEY_LEN,
    LOW,
    OUT_OF_ORDER,
    ROW,
    ROW_AT,
    ROWS_END,
    SEQ,
    START,
    START_LEN,
    TAIL_LEN,
    TIMES,
    USED_UP,
    VALUE,
    VALUE_LEN,
    VERSION,
)
from shale.kernels.layout.decoder import BAD_CHECKSUM, BAD_COUNT, BAD_FLAGS, BAD_ROW
from shale.kernels.source.block.row_head import read_row_head
from shale.kernels.source.compare import compare_bytes, word_of
from shale.kernels.source.crc32 import crc32
from shale.kernels.source.jit import helper, inlined, kernel
from shale.kernels.source.memory import (
    LINE_BYTES,
    copy,
    copy_loose,
    load_i64,
    load_u8,
    load_u16be,
    load_u32be,
    load_u64,
    load_u64be,
    prefetch,
    set_word,
    store_u64,
    word,
)

_ALL_ONES = np.uint64(2**64 - 1)


@helper
def open_next_block(cursor: int) -> int:
    """Open the next of the blocks; return ``ROW``, ``USED_UP`` or an error."""
    block = word(cursor, BLOCK) + 1
    if block >= word(cursor, BLOCKS):
        return USED_UP
    set_word(cursor, BLOCK, block)
    bounds = word(cursor, BOUNDS)
    base = word(cursor, DATA) - load_i64(bounds)
    start = base + load_i64(bounds + 8 * block)
    stop = base + load_i64(bounds + 8 * block + 8)
    set_word(cursor, ROW_AT, start)
    set_word(cursor, ROWS_END, start)
    set_word(cursor, AHEAD, stop - start)
    if word(cursor, HAS_CHECKSUMS) != 0:
        stop -= 4
        if stop < start or crc32(start, stop - start) != load_u32be(stop):
            return BAD_CHECKSUM
    if stop - start < 2:
        return BAD_COUNT
    count = load_u16be(stop - 2)
    end = stop - 2 - 2 * count
    if count == 0 or end <= start:
        return BAD_COUNT
    set_word(cursor, ROWS_END, end)
    set_word(cursor, BASE_LEN, 0)
    set_word(cursor, BLOCK_ROWS, 0)
    return ROW


@inlined
def _join_key(cursor: int, shared: int, suffix_at: int, suffix: int, has_slack: bool) -> None:
    key = word(cursor, KEY)
    base = word(cursor, BASE_KEY)
    if base != key:
        copy_loose(key, base, shared)
    if has_slack or suffix_at + suffix + SLACK <= word(cursor, DATA_END):
        copy_loose(key + shared, suffix_at, suffix)
    else:
        copy(key + shared, suffix_at, suffix)
    key_len = shared + suffix
    set_word(cursor, KEY_LEN, key_len)
    if base == key and shared >= 8 and key_len >= 16:
        # Combine the suffix with the words of the key before: loads of bytes that were just stored would wait for them.
        if shared < 16:
            places = np.uint64(8 * (shared - 8))
            rest = _ALL_ONES >> places
            low = load_u64(cursor + 8 * LOW)
            store_u64(cursor + 8 * LOW, (low & ~rest) | (load_u64be(suffix_at) >> places))
    else:
        store_u64(cursor + 8 * HIGH, word_of(key, key_len))
        store_u64(cursor + 8 * LOW, word_of(key + 8, key_len - 8) if key_len > 8 else np.uint64(0))
    if base == key:
        set_word(cursor, BASE_LEN, key_len)
    elif word(cursor, BLOCK_ROWS) == 0:
        copy_loose(base, key, key_len)
        set_word(cursor, BASE_LEN, key_len)
        set_word(cursor, BLOCK_ROWS, 1)


@inlined
def _read_v2(cursor: int, has_slack: bool) -> int:
    at, end = word(cursor, ROW_AT), word(cursor, ROWS_END)
    shared, suffix, value_len, head = read_row_head(at, end)
    value = head + suffix
    tail = value + value_len
    if shared < 0 or shared > word(cursor, BASE_LEN):
        return BAD_ROW
    flags = load_u8(tail + 8)
    if flags > 15 or (flags & 9) == 9:
        return BAD_FLAGS
    created = tail + 9 + 8 * (flags >> 1 & 1)
    following = created + 8 * (flags >> 2 & 1)
    if following > end:
        return BAD_ROW
    _join_key(cursor, shared, head, suffix, has_slack)
    store_u64(cursor + 8 * SEQ, load_u64be(tail))
    set_word(cursor, FLAGS, flags)
    set_word(cursor, VALUE, value)
    # A tombstone may have value bytes in the block; they are dropped.
    if flags & 1 and value_len > 0:
        set_word(cursor, VALUE_LEN, 0)
        set_word(cursor, TAIL_LEN, 0)
    else:
        set_word(cursor, VALUE_LEN, value_len)
        set_word(cursor, TAIL_LEN, following - value)
    set_word(cursor, TIMES, tail + 9)
    set_word(cursor, CREATED, created)
    set_word(cursor, ROW_AT, following)
    return ROW


@helper
def _read_v1(cursor: int, has_slack: bool) -> int:
    at, end = word(cursor, ROW_AT), word(cursor, ROWS_END)
    if at + 4 > end:
        return BAD_ROW
    shared = load_u16be(at)
    suffix = load_u16be(at + 2)
    tail = at + 4 + suffix
    if tail + 9 > end or shared > word(cursor, BASE_LEN):
        return BAD_ROW
    flags = load_u8(tail + 8)
    if flags > 15 or (flags & 9) == 9:
        return BAD_FLAGS
    created = tail + 9 + 8 * (flags >> 1 & 1)
    value = created + 8 * (flags >> 2 & 1)
    if value > end:
        return BAD_ROW
    value_len = 0
    if flags & 1:
        flags &= 13
    else:
        if value + 4 > end:
            return BAD_ROW
        value_len = load_u32be(value)
        value += 4
        if value + value_len > end:
            return BAD_ROW
    _join_key(cursor, shared, at + 4, suffix, has_slack)
    store_u64(cursor + 8 * SEQ, load_u64be(tail))
    set_word(cursor, FLAGS, flags)
    set_word(cursor, VALUE, value)
    set_word(cursor, VALUE_LEN, value_len)
    set_word(cursor, TAIL_LEN, 0)
    set_word(cursor, TIMES, tail + 9)
    set_word(cursor, CREATED, created)
    set_word(cursor, ROW_AT, value + value_len)
    return ROW


@inlined
def _reaches_end(cursor: int) -> bool:
    """Compare by words while they differ: loads of a key that was just assembled would wait for its stores."""
    one, other = load_u64(cursor + 8 * HIGH), load_u64(cursor + 8 * END_HIGH)
    if one != other:
        return one > other
    one, other = load_u64(cursor + 8 * LOW), load_u64(cursor + 8 * END_LOW)
    if one != other:
        return one > other
    return compare_bytes(word(cursor, KEY), word(cursor, KEY_LEN), word(cursor, END), word(cursor, END_LEN)) >= 0


@inlined
def next_row(cursor: int, has_slack: bool) -> int:
    """Go to the next row in the range.

    Inlined, because calls would cost a tenth of a merge.  ``has_slack``: the memory after the blocks can be read.
    """
    while True:
        if word(cursor, ROW_AT) >= word(cursor, ROWS_END):
            status = open_next_block(cursor)
            if status != ROW:
                return status
        # The checksum of the next block reads all of it at once and would wait for memory.
        ahead = word(cursor, ROW_AT) + word(cursor, AHEAD)
        prefetch(ahead)
        prefetch(ahead + LINE_BYTES)
        status = _read_v2(cursor, has_slack) if word(cursor, VERSION) == 2 else _read_v1(cursor, has_slack)
        if status != ROW:
            return status
        start = word(cursor, START)
        if start != 0:
            if compare_bytes(word(cursor, KEY), word(cursor, KEY_LEN), start, word(cursor, START_LEN)) < 0:
                continue
            set_word(cursor, START, 0)
        if word(cursor, END) != 0:
            # The rest is read too, to detect rows out of order.
            if _reaches_end(cursor):
                set_word(cursor, IS_PAST_END, 1)
                continue
            if word(cursor, IS_PAST_END) != 0:
                return OUT_OF_ORDER
        return ROW


@kernel("i64(i64)")
def first_row(cursor: int) -> int:
    """Go to the first row of new blocks; return ``ROW``, ``USED_UP`` or an error of ``layout.decoder``."""
    return next_row(cursor, True)
