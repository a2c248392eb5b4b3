"""Kernel: merge sources by (key, sequence number descending) and keep what the rules keep, in one pass.

Sources are chunks of columns.  The kernel stops when a chunk is used up or the output is full, and goes on from there.
``order`` lists the live sources by their next row, so the next row is always that of the first; a source that
advances moves back past those that now come before it, which is one comparison while sources do not overlap.

The plain twin is ``shale.iter.plain``; docs/protocol.md 7.1 and 7.2 have the rules.
"""

from typing import Any

import numpy as np

from shale.kernels.columns import (
    COLUMNS,
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
from shale.kernels.compare import compare_bytes, word_of
from shale.kernels.jit import helper, kernel, part
from shale.kernels.memory import (
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
from shale.kernels.rows import I64
from shale.kernels.rules import Rules
from shale.types import U64_MAX

DONE = 0
STARVED = 1
"""``state[SOURCE]`` has used up its chunk: give it the next one, or take it out of the order."""
FULL = 2
"""The output has no room for the next row; rows before ``state[SETTLED]`` are final."""

# The words of the state.
LIVE = 0
"""Sources in the order."""
SOURCE = 1
ROWS = 2
"""Rows in the output."""
SETTLED = 3
"""Rows in the output that nothing can take back; behind them stand tombstones that may yet be dropped."""
KEYS_AT = 4
VALUES_AT = 5
HAS_KEY = 6
KEY = 7
"""Address of the current key: the last one met, kept or not."""
KEY_LEN = 8
LAST_SEQ = 9
SKIPPING = 10
"""1: older versions of the current key go."""
EXPIRED_VALUES = 11
"""Values that became tombstones so far."""
EXPIRED_OPERANDS = 12
"""Operands that went so far."""
STATE_WORDS = 13

# The words of the rules.
NEWEST_ONLY = 0
MAX_SEQ = 1
HAS_MIN_SEQ = 2
MIN_SEQ = 3
HAS_NOW = 4
NOW = 5
DROP_TOMBSTONES = 6
RULE_WORDS = 7


def rule_words(rules: Rules) -> I64:
    """The words of ``rules``, as above."""

    def signed(number: int) -> int:
        return number - 2**64 if number >= 2**63 else number

    words = np.zeros(RULE_WORDS, np.int64)
    words[NEWEST_ONLY] = rules.newest_only
    words[MAX_SEQ] = signed(U64_MAX if rules.max_seq is None else rules.max_seq)
    words[HAS_MIN_SEQ] = rules.min_seq is not None
    words[MIN_SEQ] = signed(rules.min_seq or 0)
    words[HAS_NOW] = rules.now_tick is not None
    words[NOW] = rules.now_tick or 0
    words[DROP_TOMBSTONES] = rules.drop_tombstones
    return words


# The words of a source, behind the addresses of its columns.
AT = COLUMNS
"""Its next row."""
COUNT = COLUMNS + 1
HEAD = COLUMNS + 2
"""Address of the key of the next row."""
HEAD_LEN = COLUMNS + 3
HEAD_HIGH = COLUMNS + 4
"""The first eight bytes of that key, as a number; zeros behind shorter keys."""
HEAD_LOW = COLUMNS + 5
"""The next eight."""
SOURCE_WORDS = COLUMNS + 6
SOURCE_BYTES = 8 * SOURCE_WORDS


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


@part
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


@kernel("void(int64, int64, int64, int64)")
def insert(sources: int, order: int, place: int, live: int) -> None:
    """Move the source at ``place``, whose head is new, behind all of the ``live`` ones that come before it."""
    source = word(order, place)
    source_at = sources + SOURCE_BYTES * source
    _load_head(source_at)
    while place + 1 < live and _comes_before(sources + SOURCE_BYTES * word(order, place + 1), source_at):
        set_word(order, place, word(order, place + 1))
        place += 1
    set_word(order, place, source)


@kernel("int64(int64, int64, int64[::1], int64[::1], int64[::1], int64, int64, int64)")
def fuse(
    sources: int, order: int, rules: Any, state: Any, out: Any, rows_max: int, keys_max: int, values_max: int
) -> int:
    """Merge until a chunk is used up or the output is full.

    Args:
        sources: address of i64 (k, SOURCE_WORDS); the heads of live ones are loaded.
        order: address of i64 (k,), the live sources by head.
        rules: see the words above.
        state: see the words above.
        out: addresses of the columns to write, with slack behind the byte columns.
        rows_max: room for rows.
        keys_max: room for key bytes.
        values_max: room for value bytes.
    """
    max_seq = np.uint64(rules[MAX_SEQ])
    min_seq = np.uint64(rules[MIN_SEQ])
    newest_only = rules[NEWEST_ONLY] != 0
    has_min_seq = rules[HAS_MIN_SEQ] != 0
    drop = rules[DROP_TOMBSTONES] != 0
    rows = state[ROWS]
    settled = state[SETTLED]
    keys_at = state[KEYS_AT]
    values_at = state[VALUES_AT]
    has_key = state[HAS_KEY] != 0
    key = state[KEY]
    key_len = state[KEY_LEN]
    key_high = word_of(key, key_len) if has_key else np.uint64(0)
    last_seq = np.uint64(state[LAST_SEQ])
    skipping = state[SKIPPING] != 0
    status = DONE
    while state[LIVE] > 0:
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
                rows = settled
                keys_at = load_i64(out[KEY_OFFSETS] + 8 * rows)
            else:
                settled = rows
            skipping = False
        keep = not skipping and seq <= max_seq and not (same and seq == last_seq)
        if keep:
            flags = load_u8(word(source_at, FLAGS) + row)
            expires = load_i64(word(source_at, EXPIRE_TS) + 8 * row)
            place = word(source_at, VAL_OFFSETS) + 8 * row
            start = load_i64(place)
            size = load_i64(place + 8) - start
            expired = 0
            if rules[HAS_NOW] != 0 and (flags & 3) == 2 and expires <= rules[NOW]:
                if flags & 8:
                    keep = False
                    state[EXPIRED_OPERANDS] += 1
                else:
                    flags = flags & ~2 | 1
                    expired = 1
                    expires = 0
                    size = 0
            if keep:
                if rows >= rows_max or keys_at + head_len > keys_max or values_at + size > values_max:
                    if not drop:
                        settled = rows
                    status = FULL
                    break
                state[EXPIRED_VALUES] += expired
                value = word(source_at, VAL_BYTES) + start
                ends = word(source_at, VAL_BYTES) + load_i64(word(source_at, VAL_OFFSETS) + 8 * word(source_at, COUNT))
                if value + size + SLACK <= ends:
                    copy_loose(out[VAL_BYTES] + values_at, value, size)
                else:
                    copy(out[VAL_BYTES] + values_at, value, size)
                values_at += size
                if head_len == 16:
                    copy(out[KEY_BYTES] + keys_at, head, 16)
                else:
                    copy(out[KEY_BYTES] + keys_at, head, head_len)
                keys_at += head_len
                store_u64(out[SEQ] + 8 * rows, seq)
                store_u8(out[FLAGS] + rows, flags)
                store_i64(out[CREATE_TS] + 8 * rows, load_i64(word(source_at, CREATE_TS) + 8 * row))
                store_i64(out[EXPIRE_TS] + 8 * rows, expires)
                rows += 1
                store_i64(out[KEY_OFFSETS] + 8 * rows, keys_at)
                store_i64(out[VAL_OFFSETS] + 8 * rows, values_at)
                if not flags & 1 or not drop:
                    settled = rows
                if newest_only and not flags & 8 and not (has_min_seq and seq > min_seq):
                    skipping = True
        has_key = True
        key = head
        key_len = head_len
        key_high = np.uint64(word(source_at, HEAD_HIGH))
        last_seq = seq
        set_word(source_at, AT, row + 1)
        if row + 1 == word(source_at, COUNT):
            state[SOURCE] = source
            status = STARVED
            break
        insert(sources, order, 0, state[LIVE])
    if status == DONE and drop:
        rows = settled
        keys_at = load_i64(out[KEY_OFFSETS] + 8 * rows)
    elif status == DONE:
        settled = rows
    state[ROWS] = rows
    state[SETTLED] = settled
    state[KEYS_AT] = keys_at
    state[VALUES_AT] = values_at
    state[HAS_KEY] = 1 if has_key else 0
    state[KEY] = key
    state[KEY_LEN] = key_len
    state[LAST_SEQ] = np.int64(last_seq)
    state[SKIPPING] = 1 if skipping else 0
    return status
