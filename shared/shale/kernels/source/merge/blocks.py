"""Kernel: stored blocks of several sources to blocks of version 2, merged, with retention, in one pass.

This does to stored bytes what ``merge_filter`` does to columns: a row that is kept goes from its block to the output
in one copy after its new key.  Order and rules are those of ``merge_filter`` (docs/reference/protocol.md 7.1
and 7.2), blocks
are those of ``encode_blocks``; a test holds the three together.
"""

from typing import Any

import numpy as np

from shale.kernels.columns import SLACK
from shale.kernels.layout.cursor import (
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
)
from shale.kernels.layout.encoder import BLOCK_ROWS, BLOCK_START, BLOCKS, LIMIT, SEPARATORS_AT
from shale.kernels.layout.merge_blocks import (
    BAD_BLOCK,
    BLOCKS_MAX,
    DONE,
    EXPIRED_OPERANDS,
    EXPIRED_VALUES,
    FIRST_KEY,
    FIRST_LEN,
    FULL,
    HAS_CHECKSUMS,
    HAS_MET,
    HASHES,
    HASHES_MAX,
    KEY_ONE,
    KEY_TWO,
    KEYS_LEN,
    LAST_SEQ,
    LIVE,
    LONGEST,
    MET,
    MET_LEN,
    NEED_INPUT,
    NEED_METADATA_SPACE,
    NEED_OUTPUT_SPACE,
    NEED_TOMBSTONE_SPACE,
    NOTED,
    OUT,
    OUT_MAX,
    OUT_OF_ORDER,
    PENDING_CREATE_TS,
    PENDING_EXPIRE_TS,
    PENDING_FLAGS,
    PENDING_SEQ,
    PENDING_TOMBSTONE_BYTES,
    PENDING_TOMBSTONES,
    PENDING_TOMBSTONES_AT,
    PENDING_TOMBSTONES_COUNT,
    PENDING_TOMBSTONES_MAX,
    RESTARTS,
    ROWS,
    SEPARATOR_ENDS,
    SEPARATORS,
    SEPARATORS_MAX,
    SKIPPING,
    SOURCE,
    TABLE,
    TARGET,
    VALUES_LEN,
    WRITTEN,
    WRITTEN_LEN,
    WRITTEN_SEQ,
)
from shale.kernels.layout.merge_columns import DROP_TOMBSTONES, HAS_MIN_SEQ, HAS_NOW, MAX_SEQ, MIN_SEQ, NEWEST_ONLY, NOW
from shale.kernels.source.block.cursor import next_row
from shale.kernels.source.block.encode import (
    count_row,
    make_room,
    note_block,
    put_head,
    put_number_and_flags,
    shared_len,
)
from shale.kernels.source.compare import compare_bytes
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
    store_u64,
    store_u64be,
    word,
)
from shale.kernels.source.siphash import siphash13


@inlined
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


@inlined
def insert_first(cursors: int, order: int, live: int) -> None:
    """Move the first source, whose row is new, to its position among the ``live`` ones."""
    source = word(order, 0)
    cursor = cursors + source * CURSOR_BYTES
    place = 0
    while place + 1 < live and _comes_before(cursors + word(order, place + 1) * CURSOR_BYTES, cursor):
        set_word(order, place, word(order, place + 1))
        place += 1
    set_word(order, place, source)


@kernel("void(i64, i64, i64)")
def insert_cursor(cursors: int, order: int, live: int) -> None:
    """``insert_first`` for a source that begins."""
    insert_first(cursors, order, live)


@inlined
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


@inlined
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
        return NEED_METADATA_SPACE
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
        return NEED_OUTPUT_SPACE
    if word(blocks, BLOCK_ROWS) == 0:
        separator_len = min(common + 1, key_len) if word(state, WRITTEN_LEN) >= 0 else 0
        note_block(blocks, word(sink, SEPARATORS), word(sink, SEPARATOR_ENDS), key, separator_len)
    return DONE


@inlined
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
    """Write a row field by field."""
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


@inlined
def _write_whole(state: int, blocks: int, sink: int, cursor: int, common: int, seq: Any, flags: int) -> int:
    """Write the row of a source unchanged: everything after its key in one copy."""
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
def _defer_tombstone(state: int, cursor: int, seq: Any, flags: int) -> None:
    """Keep a tombstone until it is known whether an older row follows."""
    pending = word(state, PENDING_TOMBSTONES) + PENDING_TOMBSTONE_BYTES * word(state, PENDING_TOMBSTONES_COUNT)
    store_u64(pending + PENDING_SEQ, seq)
    store_i64(pending + PENDING_FLAGS, flags)
    if flags & 2:
        store_u64(pending + PENDING_EXPIRE_TS, load_u64be(word(cursor, TIMES)))
    if flags & 4:
        store_u64(pending + PENDING_CREATE_TS, load_u64be(word(cursor, CREATED)))
    add_word(state, PENDING_TOMBSTONES_COUNT, 1)


@helper
def _write_tombstones(state: int, blocks: int, sink: int, key: int, key_len: int) -> int:
    """Write the pending tombstones, whose key is the current one, which is also at ``state[MET]``."""
    while word(state, PENDING_TOMBSTONES_AT) < word(state, PENDING_TOMBSTONES_COUNT):
        pending = word(state, PENDING_TOMBSTONES) + PENDING_TOMBSTONE_BYTES * word(state, PENDING_TOMBSTONES_AT)
        seq = load_u64(pending + PENDING_SEQ)
        common = 0
        if word(state, WRITTEN_LEN) >= 0:
            common = _common_len(key, key_len, word(state, WRITTEN), word(state, WRITTEN_LEN))
        expire_ts, create_ts = load_i64(pending + PENDING_EXPIRE_TS), load_i64(pending + PENDING_CREATE_TS)
        flags = load_i64(pending + PENDING_FLAGS)
        status = _write_plain(state, blocks, sink, key, key_len, common, key, 0, seq, flags, expire_ts, create_ts)
        if status != DONE:
            return status
        set_word(state, WRITTEN, word(state, MET))
        set_word(state, WRITTEN_LEN, key_len)
        add_word(state, PENDING_TOMBSTONES_AT, 1)
    return DONE


@inlined
def _write_row(
    state: int, blocks: int, sink: int, cursor: int, common: int, seq: Any, flags: int, is_expired: bool
) -> int:
    """Write the pending tombstones, then the row of a source, which shares ``common`` bytes with the current key."""
    key, key_len = word(cursor, KEY), word(cursor, KEY_LEN)
    if word(state, PENDING_TOMBSTONES_COUNT) > 0:
        status = _write_tombstones(state, blocks, sink, key, key_len)
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
        set_word(state, PENDING_TOMBSTONES_AT, 0)
        set_word(state, PENDING_TOMBSTONES_COUNT, 0)
    return status


@kernel("i64(i64, i64, i64, i64, i64, i64)")
def merge_blocks(cursors: int, order: int, rules: int, state: int, blocks: int, sink: int) -> int:
    """Merge until the caller must provide input or output space.

    Args:
        cursors: address of cursors, ``CURSOR_WORDS`` each (``layout.cursor``); live ones have a row.
        order: shape (k,), the live sources by their rows.
        rules: the words of ``merge_filter``.
        state: see the words above.
        blocks: the state of ``encode_blocks``.
        sink: see the words above.

    Returns:
        One of the codes above.
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
            set_word(state, PENDING_TOMBSTONES_AT, 0)
            set_word(state, PENDING_TOMBSTONES_COUNT, 0)
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
                if word(state, PENDING_TOMBSTONES_COUNT) >= word(state, PENDING_TOMBSTONES_MAX):
                    return NEED_TOMBSTONE_SPACE
                _defer_tombstone(state, cursor, seq, flags)
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
        status = next_row(cursor, True)
        if status != ROW:
            set_word(state, SOURCE, source)
            return NEED_INPUT if status == USED_UP else BAD_BLOCK + status
        insert_first(cursors, order, word(state, LIVE))
    return DONE
