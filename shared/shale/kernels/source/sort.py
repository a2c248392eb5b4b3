"""Kernels: rows into the order of an SST, by key and then seq descending (docs/reference/protocol.md 7.1).

The first 16 bytes after the common prefix of all keys are sorted byte by byte, from the last to the first, each stable
(radix sort); rows that are still equal are compared in full.  The plain twin is
``shale.engine.memtable.row_order``.
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
    VAL_BYTES,
    VAL_OFFSETS,
)
from shale.kernels.source.block.encode import shared_len
from shale.kernels.source.compare import compare_bytes, word_of
from shale.kernels.source.jit import helper, inlined, kernel
from shale.kernels.source.memory import (
    add_word,
    copy,
    load_i64,
    load_u8,
    load_u32,
    load_u64,
    prefetch,
    set_word,
    store_i64,
    store_u8,
    store_u64,
    word,
)

_WORD_BYTES = 8
_LINE_BYTES = 64
_AHEAD = 12
"""Rows that are prefetched while earlier ones are copied: their places are random, and each would wait for memory."""


@helper
def _shared_by_all(key_bytes: int, key_offsets: int, count: int) -> int:
    first = key_bytes + load_i64(key_offsets)
    shared = load_i64(key_offsets + 8) - load_i64(key_offsets)
    for row in range(1, count):
        start = load_i64(key_offsets + 8 * row)
        size = load_i64(key_offsets + 8 * row + 8) - start
        shared = shared_len(first, key_bytes + start, min(shared, size))
    return shared


@helper
def _precedes(columns: int, left: int, right: int) -> Any:
    """Whether row ``left`` comes before row ``right``."""
    key_bytes, offsets = word(columns, KEY_BYTES), word(columns, KEY_OFFSETS)
    left_start, right_start = load_i64(offsets + 8 * left), load_i64(offsets + 8 * right)
    order = compare_bytes(
        key_bytes + left_start,
        load_i64(offsets + 8 * left + 8) - left_start,
        key_bytes + right_start,
        load_i64(offsets + 8 * right + 8) - right_start,
    )
    if order != 0:
        return order < 0
    one, other = load_u64(word(columns, SEQ) + 8 * left), load_u64(word(columns, SEQ) + 8 * right)
    return one > other if one != other else left > right


@helper
def _sink(columns: int, order: int, start: int, root: int, count: int) -> None:
    """Do one step of heap sort over the places ``[start, start + count)`` of ``order``."""
    while 2 * root + 1 < count:
        child = 2 * root + 1
        if child + 1 < count and _precedes(columns, word(order, start + child), word(order, start + child + 1)):
            child += 1
        if not _precedes(columns, word(order, start + root), word(order, start + child)):
            return
        _swap(order, start + root, start + child)
        root = child


@inlined
def _swap(order: int, left: int, right: int) -> None:
    kept = word(order, left)
    set_word(order, left, word(order, right))
    set_word(order, right, kept)


@helper
def _sort_in_full(columns: int, order: int, start: int, end: int) -> None:
    count = end - start
    for root in range(count // 2 - 1, -1, -1):
        _sink(columns, order, start, root, count)
    for last in range(count - 1, 0, -1):
        _swap(order, start, start + last)
        _sink(columns, order, start, 0, last)


@kernel("i64(i64, i64, i64)")
def order_rows(columns: int, count: int, scratch: int) -> int:
    """Sort rows by key, then newest first.

    Args:
        columns: addresses of the columns, i64 (8,).
        count: how many rows; at least 1.
        scratch: address of i64 (6 * count + HISTOGRAM_WORDS), zeros in the last HISTOGRAM_WORDS.

    Returns:
        which of the first two ``count`` words of ``scratch`` have the places of the rows: 0 or 1.
    """
    order, other = scratch, scratch + 8 * count
    words, spare = scratch + 16 * count, scratch + 32 * count
    histogram = scratch + 48 * count
    key_bytes, offsets = word(columns, KEY_BYTES), word(columns, KEY_OFFSETS)
    shared = _shared_by_all(key_bytes, offsets, count)
    low = np.uint64(0xFF)
    for place in range(count):
        row = count - 1 - place  # the newest first, as rows usually arrive by seq
        start = load_i64(offsets + 8 * row) + shared
        size = load_i64(offsets + 8 * row + 8) - start
        set_word(order, place, row)
        high = word_of(key_bytes + start, size)
        rest = word_of(key_bytes + start + _WORD_BYTES, size - _WORD_BYTES)
        store_u64(words + 16 * place, high)
        store_u64(words + 16 * place + 8, rest)
        for byte in range(8):
            add_word(histogram, 256 * byte + np.int64(rest >> np.uint64(8 * byte) & low), 1)
            add_word(histogram, 256 * (8 + byte) + np.int64(high >> np.uint64(8 * byte) & low), 1)
    swaps = 0
    for byte in range(16):
        column, shift = 8 * (1 - byte // 8), np.uint64(8 * (byte % 8))
        buckets = histogram + 2048 * byte
        if word(buckets, np.int64(load_u64(words + column) >> shift & low)) == count:
            continue
        at = 0
        for value in range(256):
            size = word(buckets, value)
            set_word(buckets, value, at)
            at += size
        for place in range(count):
            source = words + 16 * place
            bucket = np.int64(load_u64(source + column) >> shift & low)
            target = word(buckets, bucket)
            set_word(buckets, bucket, target + 1)
            store_u64(spare + 16 * target, load_u64(source))
            store_u64(spare + 16 * target + 8, load_u64(source + 8))
            set_word(other, target, word(order, place))
        words, spare = spare, words
        order, other = other, order
        swaps += 1
    start = 0
    for place in range(1, count + 1):
        if place == count or not _same_words(words, place, start):
            if place - start > 1:
                _sort_in_full(columns, order, start, place)
            start = place
    return swaps & 1


@inlined
def _same_words(words: int, left: int, right: int) -> bool:
    one, other = words + 16 * left, words + 16 * right
    return load_u64(one) == load_u64(other) and load_u64(one + 8) == load_u64(other + 8)


@inlined
def _prefetch_row(tables: int, starts: int, owners: int, number: int) -> None:
    """Prefetch the key and the first lines of the value of a row of ``take_rows``."""
    owner = load_u32(owners + 4 * number)
    table = tables + 8 * COLUMNS * owner
    row = number - word(starts, owner)
    prefetch(word(table, KEY_BYTES) + load_i64(word(table, KEY_OFFSETS) + 8 * row))
    value = word(table, VAL_BYTES) + load_i64(word(table, VAL_OFFSETS) + 8 * row)
    prefetch(value)
    prefetch(value + _LINE_BYTES)


@kernel("void(i64, i64, i64, i64, i64, i64)")
def take_rows(tables: int, starts: int, owners: int, order: int, count: int, out: int) -> None:
    """Copy rows of several tables of columns: row ``starts[i]`` is the first of table ``i == owners[row]``.

    Args:
        tables: address of i64 (tables, 8): addresses of columns.
        starts: address of i64 (tables,).
        owners: address of u32 (rows,).
        order: address of i64 (count,): the rows to copy.
        count: how many.
        out: address of i64 (8,): addresses of the columns to write.
    """
    keys, values = word(out, KEY_BYTES), word(out, VAL_BYTES)
    key_ends, value_ends = word(out, KEY_OFFSETS), word(out, VAL_OFFSETS)
    keys_at = 0
    values_at = 0
    for place in range(count):
        if place + _AHEAD < count:
            _prefetch_row(tables, starts, owners, word(order, place + _AHEAD))
        owner = load_u32(owners + 4 * word(order, place))
        table = tables + 8 * COLUMNS * owner
        row = word(order, place) - word(starts, owner)
        start = load_i64(word(table, KEY_OFFSETS) + 8 * row)
        size = load_i64(word(table, KEY_OFFSETS) + 8 * row + 8) - start
        copy(keys + keys_at, word(table, KEY_BYTES) + start, size)
        keys_at += size
        start = load_i64(word(table, VAL_OFFSETS) + 8 * row)
        size = load_i64(word(table, VAL_OFFSETS) + 8 * row + 8) - start
        copy(values + values_at, word(table, VAL_BYTES) + start, size)
        values_at += size
        store_i64(key_ends + 8 * place + 8, keys_at)
        store_i64(value_ends + 8 * place + 8, values_at)
        store_u64(word(out, SEQ) + 8 * place, load_u64(word(table, SEQ) + 8 * row))
        store_u8(word(out, FLAGS) + place, load_u8(word(table, FLAGS) + row))
        store_i64(word(out, CREATE_TS) + 8 * place, load_i64(word(table, CREATE_TS) + 8 * row))
        store_i64(word(out, EXPIRE_TS) + 8 * place, load_i64(word(table, EXPIRE_TS) + 8 * row))


@helper
def _compare_keys(columns: int, left: int, right: int) -> int:
    """Negative, zero or positive, as the keys of two rows compare."""
    key_bytes, offsets = word(columns, KEY_BYTES), word(columns, KEY_OFFSETS)
    left_start, right_start = load_i64(offsets + 8 * left), load_i64(offsets + 8 * right)
    left_len = load_i64(offsets + 8 * left + 8) - left_start
    right_len = load_i64(offsets + 8 * right + 8) - right_start
    return compare_bytes(key_bytes + left_start, left_len, key_bytes + right_start, right_len)


@kernel("bool(i64, i64)")
def is_ascending(columns: int, count: int) -> bool:
    """Return whether every key is greater than the one before."""
    for row in range(1, count):  # noqa: SIM110  # a kernel makes no generators
        if _compare_keys(columns, row - 1, row) >= 0:
            return False
    return True


@kernel("i64(i64, i64, i64)")
def keep_first(columns: int, count: int, order: int) -> int:
    """Keep, in an order of rows, the first row of each key; returns how many there are."""
    kept = min(count, 1)
    for place in range(1, count):
        if _compare_keys(columns, word(order, kept - 1), word(order, place)) != 0:
            set_word(order, kept, word(order, place))
            kept += 1
    return kept
