"""Kernel: sources of several kinds to the columns of what a reader sees, merged in one pass.

A source is stored blocks, whose rows are read in place (``layout.cursor``), or columns.  What ``merge_filter`` does
with ``newest_only`` and ``drop_tombstones`` happens here without columns in between: of a key the operands down to its
newest value are kept, and nothing that a tombstone hides (docs/reference/protocol.md 7.2).  So a row that was written
is final.
The twin is ``shale.iter.merge_filter_plain`` with those rules.
"""

import numpy as np

from shale.kernels.columns import CREATE_TS, EXPIRE_TS, KEY_BYTES, KEY_OFFSETS, SLACK, VAL_BYTES, VAL_OFFSETS
from shale.kernels.columns import FLAGS as FLAGS_COLUMN
from shale.kernels.columns import SEQ as SEQ_COLUMN
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
    TIMES,
    USED_UP,
    VALUE,
    VALUE_LEN,
    VERSION,
)
from shale.kernels.layout.merge_visible import (
    BAD_BLOCK,
    COLUMNS_VERSION,
    DONE,
    FULL,
    HAS_MET,
    HAS_NOW,
    KEYS_AT,
    LAST_SEQ,
    LIVE,
    MAX_SEQ,
    MAX_SEQ_HERE,
    MET,
    MET_HIGH,
    MET_LEN,
    MET_LOW,
    NEED_INPUT,
    NOW,
    ROWS,
    SKIPPING,
    SOURCE,
    VALUES_AT,
)
from shale.kernels.source.compare import compare_bytes
from shale.kernels.source.jit import inlined, kernel
from shale.kernels.source.memory import (
    copy,
    copy_loose,
    load_u64,
    set_word,
    store_i64,
    store_u8,
    store_u64,
    store_u64be,
    word,
)
from shale.kernels.source.merge.blocks import insert_first
from shale.kernels.source.merge.mixed_cursor import next_of, time_of

_CALL_BYTES = 64
"""From here on a call of the C library's copy pays."""


@inlined
def _write_key(cursor: int, to: int) -> None:
    key_len = word(cursor, KEY_LEN)
    if key_len <= 16:
        store_u64be(to, load_u64(cursor + 8 * HIGH))
        store_u64be(to + 8, load_u64(cursor + 8 * LOW))
    elif word(cursor, VERSION) == COLUMNS_VERSION:
        copy(to, word(cursor, KEY), key_len)
    else:
        copy_loose(to, word(cursor, KEY), key_len)


@inlined
def _write_value(cursor: int, to: int) -> None:
    value, size = word(cursor, VALUE), word(cursor, VALUE_LEN)
    if size < _CALL_BYTES and value + size + SLACK <= word(cursor, DATA_END):
        copy_loose(to, value, size)
    else:
        copy(to, value, size)


@kernel("i64(i64)")
def first_visible_row(cursor: int) -> int:
    """Go to the first row of a new input; return ``ROW``, ``USED_UP`` or an error of ``layout.decoder``."""
    return next_of(cursor, True)


@kernel("i64(i64, i64, i64, i64, i64, i64, i64)")
def merge_visible(
    cursors: int, order: int, state: int, columns: int, rows_max: int, keys_max: int, values_max: int
) -> int:
    """Merge until an input is used up or the output is full.

    Args:
        cursors: address of cursors, ``CURSOR_WORDS`` each; live ones have a row.
        order: address of i64 (k,), the live sources by their rows.
        state: see the words above.
        columns: address of the addresses of the columns to write, with slack after the byte columns.
        rows_max: capacity in rows.
        keys_max: capacity in key bytes.
        values_max: capacity in value bytes.

    Returns:
        One of the codes above.
    """
    live = word(state, LIVE)
    rows, keys_at, values_at = word(state, ROWS), word(state, KEYS_AT), word(state, VALUES_AT)
    has_met = word(state, HAS_MET) != 0
    met, met_len = word(state, MET), word(state, MET_LEN)
    met_high, met_low = load_u64(state + 8 * MET_HIGH), load_u64(state + 8 * MET_LOW)
    last_seq = load_u64(state + 8 * LAST_SEQ)
    skipping = word(state, SKIPPING) != 0
    max_seq = load_u64(state + 8 * MAX_SEQ)
    has_now, now = word(state, HAS_NOW) != 0, word(state, NOW)
    status = DONE
    while live > 0:
        source = word(order, 0)
        cursor = cursors + source * CURSOR_BYTES
        key_len, seq = word(cursor, KEY_LEN), load_u64(cursor + 8 * SEQ)
        high, low = load_u64(cursor + 8 * HIGH), load_u64(cursor + 8 * LOW)
        same = has_met and high == met_high and low == met_low and key_len == met_len
        if same and key_len > 16:
            same = compare_bytes(word(cursor, KEY) + 16, key_len - 16, met + 16, key_len - 16) == 0
        skipping = skipping and same
        is_seen = seq <= max_seq and seq <= load_u64(cursor + 8 * MAX_SEQ_HERE) and not (same and seq == last_seq)
        if is_seen and not skipping:
            flags = word(cursor, FLAGS)
            expires = time_of(cursor, TIMES) if flags & 2 else np.int64(0)
            hides = (flags & 8) == 0
            if has_now and (flags & 3) == 2 and expires <= now:
                skipping = hides
            elif flags & 1:
                skipping = True
            else:
                size = word(cursor, VALUE_LEN)
                if rows >= rows_max or keys_at + key_len > keys_max or values_at + size > values_max:
                    status = FULL
                    break
                _write_value(cursor, word(columns, VAL_BYTES) + values_at)
                _write_key(cursor, word(columns, KEY_BYTES) + keys_at)
                keys_at += key_len
                values_at += size
                store_u64(word(columns, SEQ_COLUMN) + 8 * rows, seq)
                store_u8(word(columns, FLAGS_COLUMN) + rows, flags)
                store_i64(word(columns, EXPIRE_TS) + 8 * rows, expires)
                created = time_of(cursor, CREATED) if flags & 4 else np.int64(0)
                store_i64(word(columns, CREATE_TS) + 8 * rows, created)
                rows += 1
                store_i64(word(columns, KEY_OFFSETS) + 8 * rows, keys_at)
                store_i64(word(columns, VAL_OFFSETS) + 8 * rows, values_at)
                skipping = hides
        if not same:
            met_high, met_low, met_len, has_met = high, low, key_len, True
            if key_len > 16:
                copy(met, word(cursor, KEY), key_len)
        last_seq = seq
        status = next_of(cursor, True)
        if status != ROW:
            set_word(state, SOURCE, source)
            status = NEED_INPUT if status == USED_UP else BAD_BLOCK + status
            break
        status = DONE
        insert_first(cursors, order, live)
    set_word(state, ROWS, rows)
    set_word(state, KEYS_AT, keys_at)
    set_word(state, VALUES_AT, values_at)
    set_word(state, HAS_MET, 1 if has_met else 0)
    set_word(state, MET_LEN, met_len)
    store_u64(state + 8 * MET_HIGH, met_high)
    store_u64(state + 8 * MET_LOW, met_low)
    store_u64(state + 8 * LAST_SEQ, last_seq)
    set_word(state, SKIPPING, 1 if skipping else 0)
    return status
