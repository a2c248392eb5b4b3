"""Kernel: merge sources by (key, sequence number descending) and keep what the rules keep, in one pass.

Sources are chunks of columns.  The kernel stops when a chunk is used up or the output is full, and goes on from there.
``order`` lists the live sources by their next row, so the next row is always that of the first; a source that
advances moves back past those that now come before it, which is one comparison while sources do not overlap.

The plain twin is ``shale.iter.merge_filter_plain``; docs/reference/protocol.md 7.1 and 7.2 have the rules.
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
from shale.kernels.layout.merge_columns import (
    AT,
    COUNT,
    DONE,
    DROP_TOMBSTONES,
    EXPIRED_OPERANDS,
    EXPIRED_VALUES,
    FINAL_ROWS,
    FULL,
    HAS_KEY,
    HAS_MIN_SEQ,
    HAS_NOW,
    HEAD,
    HEAD_HIGH,
    HEAD_LEN,
    HEAD_LOW,
    KEY,
    KEY_LEN,
    KEYS_AT,
    LAST_SEQ,
    LIVE,
    MAX_SEQ,
    MIN_SEQ,
    NEED_INPUT,
    NEWEST_ONLY,
    NOW,
    ROWS,
    SKIPPING,
    SOURCE,
    SOURCE_BYTES,
    VALUES_AT,
)
from shale.kernels.source.compare import compare_bytes, word_of
from shale.kernels.source.jit import helper, inlined, kernel
from shale.kernels.source.memory import (
    add_word,
    copy,
    copy_loose,
    load_i64,
    load_u8,
    load_u64,
    set_word,
    store_i64,
    store_u8,
    store_u64,
    word,
)


@helper
def _load_head(source_at: int) -> None:
    place = word(source_at, KEY_OFFSETS) + 8 * word(source_at, AT)
    start = load_i64(place)
    size = load_i64(place + 8) - start
    key = word(source_at, KEY_BYTES) + start
    set_word(source_at, HEAD, key)
    set_word(source_at, HEAD_LEN, size)
    set_word(source_at, HEAD_HIGH, np.int64(word_of(key, size)))
    set_word(source_at, HEAD_LOW, np.int64(word_of(key + 8, size - 8)) if size > 8 else 0)


@inlined
def _comes_before(left: int, right: int) -> Any:
    """By key, then newest first, then the earlier source."""
    one, other = np.uint64(word(left, HEAD_HIGH)), np.uint64(word(right, HEAD_HIGH))
    if one != other:
        return one < other
    one, other = np.uint64(word(left, HEAD_LOW)), np.uint64(word(right, HEAD_LOW))
    if one != other:
        return one < other
    left_len, right_len = word(left, HEAD_LEN), word(right, HEAD_LEN)
    order = left_len - right_len
    if left_len > 16 and right_len > 16:
        order = compare_bytes(word(left, HEAD) + 16, left_len - 16, word(right, HEAD) + 16, right_len - 16)
    if order != 0:
        return order < 0
    one = load_u64(word(left, SEQ) + 8 * word(left, AT))
    other = load_u64(word(right, SEQ) + 8 * word(right, AT))
    if one != other:
        return one > other
    return left < right


@kernel("void(i64, i64, i64, i64)")
def insert_source(sources: int, order: int, place: int, live: int) -> None:
    """Move the source at ``place``, whose head is new, to its position among the ``live`` ones."""
    source = word(order, place)
    source_at = sources + SOURCE_BYTES * source
    _load_head(source_at)
    while place + 1 < live and _comes_before(sources + SOURCE_BYTES * word(order, place + 1), source_at):
        set_word(order, place, word(order, place + 1))
        place += 1
    set_word(order, place, source)


@kernel("i64(i64, i64, i64, i64, i64, i64, i64, i64)")
def merge_filter(
    sources: int, order: int, rules: int, state: int, out: int, rows_max: int, keys_max: int, values_max: int
) -> int:
    """Merge until a chunk is used up or the output is full.

    Args:
        sources: address of i64 (k, SOURCE_WORDS); the heads of live ones are loaded.
        order: address of i64 (k,), the live sources by head.
        rules: see the words above.
        state: see the words above.
        out: addresses of the columns to write, with slack after the byte columns.
        rows_max: capacity in rows.
        keys_max: capacity in key bytes.
        values_max: capacity in value bytes.
    """
    max_seq = np.uint64(word(rules, MAX_SEQ))
    min_seq = np.uint64(word(rules, MIN_SEQ))
    newest_only = word(rules, NEWEST_ONLY) != 0
    has_min_seq = word(rules, HAS_MIN_SEQ) != 0
    drop = word(rules, DROP_TOMBSTONES) != 0
    rows = word(state, ROWS)
    final_rows = word(state, FINAL_ROWS)
    keys_at = word(state, KEYS_AT)
    values_at = word(state, VALUES_AT)
    has_key = word(state, HAS_KEY) != 0
    key = word(state, KEY)
    key_len = word(state, KEY_LEN)
    key_high = word_of(key, key_len) if has_key else np.uint64(0)
    last_seq = np.uint64(word(state, LAST_SEQ))
    skipping = word(state, SKIPPING) != 0
    status = DONE
    while word(state, LIVE) > 0:
        source = word(order, 0)
        source_at = sources + SOURCE_BYTES * source
        head = word(source_at, HEAD)
        head_len = word(source_at, HEAD_LEN)
        row = word(source_at, AT)
        seq = load_u64(word(source_at, SEQ) + 8 * row)
        same = (
            has_key
            and head_len == key_len
            and np.uint64(word(source_at, HEAD_HIGH)) == key_high
            and (key_len <= 8 or compare_bytes(head + 8, head_len - 8, key + 8, key_len - 8) == 0)
        )
        if not same:
            if drop:
                rows = final_rows
                keys_at = load_i64(word(out, KEY_OFFSETS) + 8 * rows)
            else:
                final_rows = rows
            skipping = False
        keep = not skipping and seq <= max_seq and not (same and seq == last_seq)
        if keep:
            flags = load_u8(word(source_at, FLAGS) + row)
            expires = load_i64(word(source_at, EXPIRE_TS) + 8 * row)
            place = word(source_at, VAL_OFFSETS) + 8 * row
            start = load_i64(place)
            size = load_i64(place + 8) - start
            expired = 0
            if word(rules, HAS_NOW) != 0 and (flags & 3) == 2 and expires <= word(rules, NOW):
                if flags & 8:
                    keep = False
                    add_word(state, EXPIRED_OPERANDS, 1)
                else:
                    flags = flags & ~2 | 1
                    expired = 1
                    expires = 0
                    size = 0
            if keep:
                if rows >= rows_max or keys_at + head_len > keys_max or values_at + size > values_max:
                    if not drop:
                        final_rows = rows
                    status = FULL
                    break
                add_word(state, EXPIRED_VALUES, expired)
                value = word(source_at, VAL_BYTES) + start
                ends = word(source_at, VAL_BYTES) + load_i64(word(source_at, VAL_OFFSETS) + 8 * word(source_at, COUNT))
                if value + size + SLACK <= ends:
                    copy_loose(word(out, VAL_BYTES) + values_at, value, size)
                else:
                    copy(word(out, VAL_BYTES) + values_at, value, size)
                values_at += size
                if head_len == 16:
                    copy(word(out, KEY_BYTES) + keys_at, head, 16)
                else:
                    copy(word(out, KEY_BYTES) + keys_at, head, head_len)
                keys_at += head_len
                store_u64(word(out, SEQ) + 8 * rows, seq)
                store_u8(word(out, FLAGS) + rows, flags)
                store_i64(word(out, CREATE_TS) + 8 * rows, load_i64(word(source_at, CREATE_TS) + 8 * row))
                store_i64(word(out, EXPIRE_TS) + 8 * rows, expires)
                rows += 1
                store_i64(word(out, KEY_OFFSETS) + 8 * rows, keys_at)
                store_i64(word(out, VAL_OFFSETS) + 8 * rows, values_at)
                if not flags & 1 or not drop:
                    final_rows = rows
                if newest_only and not flags & 8 and not (has_min_seq and seq > min_seq):
                    skipping = True
        has_key = True
        key = head
        key_len = head_len
        key_high = np.uint64(word(source_at, HEAD_HIGH))
        last_seq = seq
        set_word(source_at, AT, row + 1)
        if row + 1 == word(source_at, COUNT):
            set_word(state, SOURCE, source)
            status = NEED_INPUT
            break
        insert_source(sources, order, 0, word(state, LIVE))
    if status == DONE and drop:
        rows = final_rows
        keys_at = load_i64(word(out, KEY_OFFSETS) + 8 * rows)
    elif status == DONE:
        final_rows = rows
    set_word(state, ROWS, rows)
    set_word(state, FINAL_ROWS, final_rows)
    set_word(state, KEYS_AT, keys_at)
    set_word(state, VALUES_AT, values_at)
    set_word(state, HAS_KEY, 1 if has_key else 0)
    set_word(state, KEY, key)
    set_word(state, KEY_LEN, key_len)
    set_word(state, LAST_SEQ, np.int64(last_seq))
    set_word(state, SKIPPING, 1 if skipping else 0)
    return status
