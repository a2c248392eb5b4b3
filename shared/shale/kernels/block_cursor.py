"""Kernel parts: one source of rows that are read where they lie, in stored blocks (docs/format.md 7).

A cursor is a line of words at an address.  It checks every length against its block before it goes there, and the
checksum of a block when it enters it; the key of its row is in a buffer of its own, the value stays in the block.
"""

import numpy as np

from shale.kernels.block_decode import BAD_CHECKSUM, BAD_COUNT, BAD_FLAGS, BAD_ROW, VARINT_BAD, read_varint
from shale.kernels.compare import compare_bytes, word_of
from shale.kernels.crc32 import crc32
from shale.kernels.jit import helper, kernel, part
from shale.kernels.memory import (
    LINE_BYTES,
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

ROW = 0
"""There is a row."""
USED_UP = 1
"""No more rows in these blocks, or none in the range.  Other results are those of ``block_decode``."""
OUT_OF_ORDER = 7
"""A row in the range behind one that is above it."""

# The words of a cursor.
DATA = 0
"""Address of the first block."""
DATA_END = 1
BOUNDS = 2
"""Address of i64 (blocks + 1), ascending; relative to the first."""
BLOCKS = 3
BLOCK = 4
"""The open block; -1 before the first."""
VERSION = 5
HAS_CHECKSUMS = 6
ROW_AT = 7
"""Address of the next row."""
ROWS_END = 8
KEY = 9
"""Address of a buffer with room for a key as long as the longest block, and slack."""
KEY_LEN = 10
HIGH = 11
"""The first eight bytes of the key, as a number; zeros behind shorter keys."""
LOW = 12
"""The next eight."""
BASE_KEY = 13
"""What keys share: in version 1 a second buffer, in version 2 the key before, which is ``KEY`` itself."""
BASE_LEN = 14
SEQ = 15
FLAGS = 16
VALUE = 17
"""Address of the value; in version 2 the rest of the row as it is written follows."""
VALUE_LEN = 18
TAIL_LEN = 19
"""Bytes of value, sequence number, flags and times where they lie in the order of version 2; else 0."""
TIMES = 20
"""Address of the expiry if there is one; of the creation time, if there is one, in ``CREATED``."""
CREATED = 21
START = 22
"""Address of the smallest key wanted; 0: any, and once a row has reached it."""
START_LEN = 23
END = 24
"""Address of the first key not wanted any more; 0: none."""
END_LEN = 25
IS_PAST_END = 26
BLOCK_ROWS = 27
"""In version 1: whether the open block has given its first key."""
END_HIGH = 28
"""The first eight bytes of ``END``, as those of keys, and the next eight."""
END_LOW = 29
AHEAD = 30
"""Bytes of the open block: rows of the next one are about so far from those that are read."""
CURSOR_WORDS = 32
CURSOR_BYTES = 8 * CURSOR_WORDS
_ALL_ONES = np.uint64(2**64 - 1)


@helper
def _open_block(cursor: int) -> int:
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


@part
def _join_key(cursor: int, shared: int, suffix_at: int, suffix: int) -> None:
    key = word(cursor, KEY)
    base = word(cursor, BASE_KEY)
    if base != key:
        copy_loose(key, base, shared)
    copy_loose(key + shared, suffix_at, suffix)
    key_len = shared + suffix
    set_word(cursor, KEY_LEN, key_len)
    if base == key and shared >= 8 and key_len >= 16:
        # The suffix joins the words of the key before: loads of what was just stored piecemeal would wait for it.
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


@part
def _read_v2(cursor: int) -> int:
    at, end = word(cursor, ROW_AT), word(cursor, ROWS_END)
    head = at + 3
    if head > end:
        return BAD_ROW
    shared = load_u8(at)
    suffix = load_u8(at + 1)
    value_len = load_u8(at + 2)
    if (shared | suffix | value_len) >= 0x80:
        head = at
        varint = read_varint(head, end)
        if varint == VARINT_BAD:
            return BAD_ROW
        shared = varint >> 3
        head += varint & 7
        varint = read_varint(head, end)
        if varint == VARINT_BAD:
            return BAD_ROW
        suffix = varint >> 3
        head += varint & 7
        varint = read_varint(head, end)
        if varint == VARINT_BAD:
            return BAD_ROW
        value_len = varint >> 3
        head += varint & 7
    value = head + suffix
    tail = value + value_len
    if tail + 9 > end or shared > word(cursor, BASE_LEN):
        return BAD_ROW
    flags = load_u8(tail + 8)
    if flags > 15 or (flags & 9) == 9:
        return BAD_FLAGS
    created = tail + 9 + 8 * (flags >> 1 & 1)
    following = created + 8 * (flags >> 2 & 1)
    if following > end:
        return BAD_ROW
    _join_key(cursor, shared, head, suffix)
    store_u64(cursor + 8 * SEQ, load_u64be(tail))
    set_word(cursor, FLAGS, flags)
    set_word(cursor, VALUE, value)
    # A tombstone may have bytes where its value would be; they are not kept.
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
def _read_v1(cursor: int) -> int:
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
    _join_key(cursor, shared, at + 4, suffix)
    store_u64(cursor + 8 * SEQ, load_u64be(tail))
    set_word(cursor, FLAGS, flags)
    set_word(cursor, VALUE, value)
    set_word(cursor, VALUE_LEN, value_len)
    set_word(cursor, TAIL_LEN, 0)
    set_word(cursor, TIMES, tail + 9)
    set_word(cursor, CREATED, created)
    set_word(cursor, ROW_AT, value + value_len)
    return ROW


@part
def _reaches_end(cursor: int) -> bool:
    """By words while they differ: loads of a key that was just joined piecemeal would wait for its stores."""
    one, other = load_u64(cursor + 8 * HIGH), load_u64(cursor + 8 * END_HIGH)
    if one != other:
        return one > other
    one, other = load_u64(cursor + 8 * LOW), load_u64(cursor + 8 * END_LOW)
    if one != other:
        return one > other
    return compare_bytes(word(cursor, KEY), word(cursor, KEY_LEN), word(cursor, END), word(cursor, END_LEN)) >= 0


@part
def next_row(cursor: int) -> int:
    """Go to the next row in the range.  A call of it would cost a tenth of a merge."""
    while True:
        if word(cursor, ROW_AT) >= word(cursor, ROWS_END):
            status = _open_block(cursor)
            if status != ROW:
                return status
        # The checksum of the next block goes over all of it at once and would wait for memory.
        ahead = word(cursor, ROW_AT) + word(cursor, AHEAD)
        prefetch(ahead)
        prefetch(ahead + LINE_BYTES)
        status = _read_v2(cursor) if word(cursor, VERSION) == 2 else _read_v1(cursor)
        if status != ROW:
            return status
        start = word(cursor, START)
        if start != 0:
            if compare_bytes(word(cursor, KEY), word(cursor, KEY_LEN), start, word(cursor, START_LEN)) < 0:
                continue
            set_word(cursor, START, 0)
        if word(cursor, END) != 0:
            # The rest is read too: what is not sorted must not end in silence here.
            if _reaches_end(cursor):
                set_word(cursor, IS_PAST_END, 1)
                continue
            if word(cursor, IS_PAST_END) != 0:
                return OUT_OF_ORDER
        return ROW


@kernel("int64(int64)")
def first_row(cursor: int) -> int:
    """Go to the first row of new blocks; returns ``ROW``, ``USED_UP`` or what is wrong with them."""
    return next_row(cursor)
