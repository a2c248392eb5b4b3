"""Kernel: stored blocks of several sources to blocks of version 2, merged, with retention, in one pass.

What ``fuse`` does between columns happens here between stored bytes: a row that is kept goes from its block to the
output in one copy behind its new key.  Order and rules are those of ``fuse`` (docs/protocol.md 7.1 and 7.2), blocks
are those of ``block_encode``; a test holds the three together.
"""

from typing import Any

import numpy as np

from shale.kernels.block_cursor import (
    CREATED,
    CURSOR_BYTES,
    DATA_END,
    FLAGS,
    HIGH,
    KEY,
    KEY_LEN,
    LOW,
    ROW,
    SEQ,
    TAIL_LEN,
    TIMES,
    USED_UP,
    VALUE,
    VALUE_LEN,
    next_row,
)
from shale.kernels.block_encode import (
    BLOCK_ROWS,
    BLOCK_START,
    BLOCKS,
    LIMIT,
    SEPARATORS_AT,
    count_row,
    make_room,
    note_block,
    put_head,
    put_number_and_flags,
    shared_len,
)
from shale.kernels.columns import SLACK
from shale.kernels.compare import compare_bytes
from shale.kernels.fuse import DROP_TOMBSTONES, HAS_MIN_SEQ, HAS_NOW, MAX_SEQ, MIN_SEQ, NEWEST_ONLY, NOW
from shale.kernels.jit import helper, kernel, part
from shale.kernels.memory import (
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
    store_u64,
    store_u64be,
    word,
)
from shale.kernels.merge_steps import Step
from shale.kernels.siphash import siphash13

DONE = Step.DONE.value
STARVED = Step.STARVED.value
"""Of ``state[SOURCE]``; it may also be taken out of the order."""
FULL = Step.FULL.value
NEED_ROOM = Step.NEED_ROOM.value
NEED_NOTES = Step.NEED_NOTES.value
"""``state[LONGEST]`` is the length of the next key."""
NEED_GRAVES = 5
"""There are more tombstones of one key than there is room for."""
OUT_OF_ORDER = 6
"""The row of ``state[SOURCE]`` is not above the row before it."""
BAD_BLOCK = 16
"""Added to what is wrong with the blocks of ``state[SOURCE]``; see ``block_decode``."""

# The words of the state.
LIVE = 0
"""Sources in the order."""
SOURCE = 1
HAS_MET = 2
MET = 3
"""Address of the current key: the last one met, written or not."""
MET_LEN = 4
LAST_SEQ = 5
SKIPPING = 6
"""1: older versions of the current key go."""
WRITTEN = 7
"""Address of the key of the row written last."""
WRITTEN_LEN = 8
"""-1: none is written in this file."""
KEY_ONE = 9
"""Two addresses of buffers that keys live in, each with room for every key and slack."""
KEY_TWO = 10
GRAVES = 11
"""Address of tombstones of the current key that may yet be dropped, ``GRAVE_BYTES`` each."""
GRAVES_AT = 12
GRAVES_COUNT = 13
GRAVES_MAX = 14
ROWS = 15
"""Rows written since the state was reset, as the next two."""
KEYS_LEN = 16
VALUES_LEN = 17
NOTED = 18
"""Hashes written in this call."""
LONGEST = 19
WRITTEN_SEQ = 20
FIRST_KEY = 21
"""Address of a buffer for the key of the first row written."""
FIRST_LEN = 22
EXPIRED_VALUES = 23
"""Values that became tombstones so far."""
EXPIRED_OPERANDS = 24
"""Operands that went so far."""
STATE_WORDS = 25

# A tombstone that waits.
GRAVE_SEQ = 0
GRAVE_FLAGS = 8
GRAVE_EXPIRE_TS = 16
GRAVE_CREATE_TS = 24
GRAVE_BYTES = 32

# Where the output goes, as words.
OUT = 0
OUT_MAX = 1
RESTARTS = 2
"""See ``encode_blocks`` for this and the next two."""
TARGET = 3
HAS_CHECKSUMS = 4
SEPARATORS = 5
SEPARATORS_MAX = 6
SEPARATOR_ENDS = 7
TABLE = 8
BLOCKS_MAX = 9
"""Room for blocks that begin in one call, one less than ``TABLE`` has."""
HASHES = 10
"""Address of uint64 (HASHES_MAX): hashes of keys; 0: none are wanted."""
HASHES_MAX = 11
SINK_WORDS = 12


@part
def _comes_before(left: int, right: int) -> bool:
    """By key, then newest first, then the earlier source."""
    one, other = load_u64(left + 8 * HIGH), load_u64(right + 8 * HIGH)
    if one != other:
        return one < other
    one, other = load_u64(left + 8 * LOW), load_u64(right + 8 * LOW)
    if one != other:
        return one < other
    return _breaks_tie(left, right)


@helper
def _breaks_tie(left: int, right: int) -> bool:
    left_len, right_len = word(left, KEY_LEN), word(right, KEY_LEN)
    order = left_len - right_len
    if left_len > 16 and right_len > 16:
        order = compare_bytes(word(left, KEY) + 16, left_len - 16, word(right, KEY) + 16, right_len - 16)
    if order != 0:
        return order < 0
    one, other = load_u64(left + 8 * SEQ), load_u64(right + 8 * SEQ)
    if one != other:
        return one > other
    return left < right


@part
def insert_first(cursors: int, order: int, live: int) -> None:
    """Move the first source, whose row is new, behind all of the ``live`` ones that come before it."""
    source = word(order, 0)
    cursor = cursors + source * CURSOR_BYTES
    place = 0
    while place + 1 < live and _comes_before(cursors + word(order, place + 1) * CURSOR_BYTES, cursor):
        set_word(order, place, word(order, place + 1))
        place += 1
    set_word(order, place, source)


@kernel("void(int64, int64, int64)")
def insert(cursors: int, order: int, live: int) -> None:
    """``insert_first`` for a source that begins."""
    insert_first(cursors, order, live)


@part
def _common_len(left: int, left_len: int, right: int, right_len: int) -> int:
    most = min(left_len, right_len)
    if most >= 16:
        difference = load_u64be(left) ^ load_u64be(right)
        if difference != np.uint64(0):
            return leading_zeros(difference) // 8
        difference = load_u64be(left + 8) ^ load_u64be(right + 8)
        if difference != np.uint64(0):
            return 8 + leading_zeros(difference) // 8
        return 16 + shared_len(left + 16, right + 16, most - 16)
    return shared_len(left, right, most)


@part
def _begin_row(
    state: int, blocks: int, sink: int, key: int, key_len: int, common: int, value_len: int, tail_len: int
) -> int:
    """Make sure that a row can be written; ``common`` is what its key shares with the one written last."""
    is_new = common != key_len or common != word(state, WRITTEN_LEN)
    if is_new and word(blocks, BLOCK_START) > word(blocks, LIMIT):
        return FULL
    if (
        word(blocks, BLOCKS) >= word(sink, BLOCKS_MAX)
        or word(blocks, SEPARATORS_AT) + key_len > word(sink, SEPARATORS_MAX)
        or word(state, NOTED) >= word(sink, HASHES_MAX)
    ):
        set_word(state, LONGEST, key_len)
        return NEED_NOTES
    if not make_room(
        blocks,
        word(sink, OUT),
        word(sink, OUT_MAX),
        word(sink, RESTARTS),
        word(sink, TARGET),
        word(sink, TABLE),
        word(sink, HAS_CHECKSUMS),
        key_len,
        common,
        value_len,
        tail_len,
    ):
        return NEED_ROOM
    if word(blocks, BLOCK_ROWS) == 0:
        separator_len = min(common + 1, key_len) if word(state, WRITTEN_LEN) >= 0 else 0
        note_block(blocks, word(sink, SEPARATORS), word(sink, SEPARATOR_ENDS), key, separator_len)
    return DONE


@part
def _end_row(
    state: int, blocks: int, sink: int, key: int, key_len: int, value_len: int, seq: Any, flags: int, at: int
) -> None:
    count_row(blocks, at - word(sink, OUT), flags)
    if word(sink, HASHES) != 0:
        store_u64(word(sink, HASHES) + 8 * word(state, NOTED), siphash13(key, key_len))
        add_word(state, NOTED, 1)
    if word(state, ROWS) == 0:
        copy_loose(word(state, FIRST_KEY), key, key_len)
        set_word(state, FIRST_LEN, key_len)
    add_word(state, ROWS, 1)
    add_word(state, KEYS_LEN, key_len)
    add_word(state, VALUES_LEN, value_len)
    set_word(state, WRITTEN_SEQ, np.int64(seq))


@helper
def _write_plain(
    state: int,
    blocks: int,
    sink: int,
    key: int,
    key_len: int,
    common: int,
    value: int,
    value_len: int,
    seq: Any,
    flags: int,
    expire_ts: Any,
    create_ts: Any,
) -> int:
    """Write a row part by part."""
    tail_len = value_len + 9 + 8 * ((flags >> 1 & 1) + (flags >> 2 & 1))
    status = _begin_row(state, blocks, sink, key, key_len, common, value_len, tail_len)
    if status != DONE:
        return status
    at = put_head(blocks, word(sink, OUT), word(sink, RESTARTS), key, key_len, common, value_len)
    copy(at, value, value_len)
    at = put_number_and_flags(at + value_len, seq, flags)
    if flags & 2:
        store_u64be(at, np.uint64(expire_ts))
        at += 8
    if flags & 4:
        store_u64be(at, np.uint64(create_ts))
        at += 8
    _end_row(state, blocks, sink, key, key_len, value_len, seq, flags, at)
    return DONE


@part
def _write_whole(state: int, blocks: int, sink: int, cursor: int, common: int, seq: Any, flags: int) -> int:
    """Write the row of a source as it is: everything behind its key in one copy."""
    key, key_len = word(cursor, KEY), word(cursor, KEY_LEN)
    value, value_len, tail_len = word(cursor, VALUE), word(cursor, VALUE_LEN), word(cursor, TAIL_LEN)
    status = _begin_row(state, blocks, sink, key, key_len, common, value_len, tail_len)
    if status != DONE:
        return status
    at = put_head(blocks, word(sink, OUT), word(sink, RESTARTS), key, key_len, common, value_len)
    if tail_len < 512 and value + tail_len + SLACK <= word(cursor, DATA_END):
        copy_loose(at, value, tail_len)
    else:
        copy(at, value, tail_len)
    _end_row(state, blocks, sink, key, key_len, value_len, seq, flags, at + tail_len)
    return DONE


@helper
def _bury(state: int, cursor: int, seq: Any, flags: int) -> None:
    """Keep a tombstone back until it is known whether something lies below."""
    grave = word(state, GRAVES) + GRAVE_BYTES * word(state, GRAVES_COUNT)
    store_u64(grave + GRAVE_SEQ, seq)
    store_i64(grave + GRAVE_FLAGS, flags)
    if flags & 2:
        store_u64(grave + GRAVE_EXPIRE_TS, load_u64be(word(cursor, TIMES)))
    if flags & 4:
        store_u64(grave + GRAVE_CREATE_TS, load_u64be(word(cursor, CREATED)))
    add_word(state, GRAVES_COUNT, 1)


@helper
def _write_graves(state: int, blocks: int, sink: int, key: int, key_len: int) -> int:
    """Write the tombstones that wait; their key is the current one, which lies at ``state[MET]`` too."""
    while word(state, GRAVES_AT) < word(state, GRAVES_COUNT):
        grave = word(state, GRAVES) + GRAVE_BYTES * word(state, GRAVES_AT)
        seq = load_u64(grave + GRAVE_SEQ)
        common = 0
        if word(state, WRITTEN_LEN) >= 0:
            common = _common_len(key, key_len, word(state, WRITTEN), word(state, WRITTEN_LEN))
        expire_ts, create_ts = load_i64(grave + GRAVE_EXPIRE_TS), load_i64(grave + GRAVE_CREATE_TS)
        flags = load_i64(grave + GRAVE_FLAGS)
        status = _write_plain(state, blocks, sink, key, key_len, common, key, 0, seq, flags, expire_ts, create_ts)
        if status != DONE:
            return status
        set_word(state, WRITTEN, word(state, MET))
        set_word(state, WRITTEN_LEN, key_len)
        add_word(state, GRAVES_AT, 1)
    return DONE


@part
def _write_row(
    state: int, blocks: int, sink: int, cursor: int, common: int, seq: Any, flags: int, is_expired: bool
) -> int:
    """Write the row of a source behind the tombstones that waited for it; ``common`` is shared with the current key."""
    key, key_len = word(cursor, KEY), word(cursor, KEY_LEN)
    if word(state, GRAVES_COUNT) > 0:
        status = _write_graves(state, blocks, sink, key, key_len)
        if status != DONE:
            return status
    if word(state, WRITTEN) != word(state, MET) or word(state, WRITTEN_LEN) < 0:
        common = 0
        if word(state, WRITTEN_LEN) >= 0:
            common = _common_len(key, key_len, word(state, WRITTEN), word(state, WRITTEN_LEN))
    if word(cursor, TAIL_LEN) > 0 and not is_expired:
        status = _write_whole(state, blocks, sink, cursor, common, seq, flags)
    else:
        value, value_len = word(cursor, VALUE), 0 if is_expired else word(cursor, VALUE_LEN)
        expire_ts, create_ts = np.int64(0), np.int64(0)
        if flags & 2:
            expire_ts = np.int64(load_u64be(word(cursor, TIMES)))
        if flags & 4:
            create_ts = np.int64(load_u64be(word(cursor, CREATED)))
        status = _write_plain(
            state, blocks, sink, key, key_len, common, value, value_len, seq, flags, expire_ts, create_ts
        )
    if status == DONE:
        set_word(state, GRAVES_AT, 0)
        set_word(state, GRAVES_COUNT, 0)
    return status


@kernel("int64(int64, int64, int64, int64, int64, int64)")
def merge_blocks(cursors: int, order: int, rules: int, state: int, blocks: int, sink: int) -> int:
    """Merge until something has to be done about input or output.

    Args:
        cursors: address of cursors, ``CURSOR_WORDS`` each (``block_cursor``); live ones have a row.
        order: shape (k,), the live sources by their rows.
        rules: the words of ``fuse``.
        state: see the words above.
        blocks: the state of ``block_encode``.
        sink: see the words above.

    Returns:
        one of the codes above.
    """
    max_seq = np.uint64(word(rules, MAX_SEQ))
    min_seq = np.uint64(word(rules, MIN_SEQ))
    newest_only = word(rules, NEWEST_ONLY) != 0
    has_min_seq = word(rules, HAS_MIN_SEQ) != 0
    has_now = word(rules, HAS_NOW) != 0
    now = word(rules, NOW)
    drop = word(rules, DROP_TOMBSTONES) != 0
    while word(state, LIVE) > 0:
        source = word(order, 0)
        cursor = cursors + source * CURSOR_BYTES
        key, key_len = word(cursor, KEY), word(cursor, KEY_LEN)
        seq = load_u64(cursor + 8 * SEQ)
        common = 0
        same = False
        if word(state, HAS_MET) != 0:
            met, met_len = word(state, MET), word(state, MET_LEN)
            common = _common_len(key, key_len, met, met_len)
            same = common == key_len and common == met_len
            if same:
                is_sorted = seq <= np.uint64(word(state, LAST_SEQ))
            else:
                is_sorted = common < key_len and (common == met_len or load_u8(key + common) > load_u8(met + common))
            if not is_sorted:
                set_word(state, SOURCE, source)
                return OUT_OF_ORDER
        if not same:
            set_word(state, GRAVES_AT, 0)
            set_word(state, GRAVES_COUNT, 0)
            set_word(state, SKIPPING, 0)
        wrote = False
        if word(state, SKIPPING) == 0 and seq <= max_seq and not (same and seq == np.uint64(word(state, LAST_SEQ))):
            flags = word(cursor, FLAGS)
            keep = True
            is_expired = has_now and (flags & 3) == 2 and np.int64(load_u64be(word(cursor, TIMES))) <= now
            if is_expired:
                keep = flags & 8 == 0
                flags = flags & ~2 | 1
            if keep and drop and flags & 1:
                if word(state, GRAVES_COUNT) >= word(state, GRAVES_MAX):
                    return NEED_GRAVES
                _bury(state, cursor, seq, flags)
            elif keep:
                status = _write_row(state, blocks, sink, cursor, common, seq, flags, is_expired)
                if status != DONE:
                    return status
                wrote = True
            if is_expired:
                add_word(state, EXPIRED_VALUES if keep else EXPIRED_OPERANDS, 1)
            if keep and newest_only and not flags & 8 and not (has_min_seq and seq > min_seq):
                set_word(state, SKIPPING, 1)
        if not same:
            place = word(state, KEY_TWO) if word(state, WRITTEN) == word(state, KEY_ONE) else word(state, KEY_ONE)
            copy_loose(place, key, key_len)
            set_word(state, MET, place)
            set_word(state, MET_LEN, key_len)
            set_word(state, HAS_MET, 1)
        if wrote:
            set_word(state, WRITTEN, word(state, MET))
            set_word(state, WRITTEN_LEN, key_len)
        set_word(state, LAST_SEQ, np.int64(seq))
        status = next_row(cursor)
        if status != ROW:
            set_word(state, SOURCE, source)
            return STARVED if status == USED_UP else BAD_BLOCK + status
        insert_first(cursors, order, word(state, LIVE))
    return DONE
