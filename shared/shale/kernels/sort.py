"""Kernels: rows into the order of an SST, by key and then seq descending (docs/protocol.md 7.1).

The first 16 bytes behind what all keys share are sorted byte by byte, from the last to the first, each pass stable
(radix sort); rows that are still equal are compared in full.  The plain twin is
``shale.engine.row_order``.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from shale.kernels.block_encode import shared_len
from shale.kernels.columns import (
    CREATE_TS,
    EXPIRE_TS,
    FLAGS,
    KEY_BYTES,
    KEY_OFFSETS,
    SEQ,
    VAL_BYTES,
    VAL_OFFSETS,
    ColumnBuffers,
    column_addresses,
)
from shale.kernels.compare import compare_bytes, word_of
from shale.kernels.jit import helper, kernel
from shale.kernels.memory import copy, load_i64, load_u8, load_u64, store_i64, store_u8, store_u64
from shale.kernels.rows import I64, Rows

_WORD_BYTES = 8


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
def _precedes(columns: Any, left: int, right: int) -> Any:
    """Whether row ``left`` comes before row ``right``."""
    key_bytes, offsets = columns[KEY_BYTES], columns[KEY_OFFSETS]
    left_start, right_start = load_i64(offsets + 8 * left), load_i64(offsets + 8 * right)
    order = compare_bytes(
        key_bytes + left_start,
        load_i64(offsets + 8 * left + 8) - left_start,
        key_bytes + right_start,
        load_i64(offsets + 8 * right + 8) - right_start,
    )
    if order != 0:
        return order < 0
    one, other = load_u64(columns[SEQ] + 8 * left), load_u64(columns[SEQ] + 8 * right)
    return one > other if one != other else left > right


@helper
def _sink(columns: Any, order: Any, start: int, root: int, count: int) -> None:
    """One step of heap sort over ``order[start : start + count]``."""
    while 2 * root + 1 < count:
        child = 2 * root + 1
        if child + 1 < count and _precedes(columns, order[start + child], order[start + child + 1]):
            child += 1
        if not _precedes(columns, order[start + root], order[start + child]):
            return
        order[start + root], order[start + child] = order[start + child], order[start + root]
        root = child


@helper
def _sort_in_full(columns: Any, order: Any, start: int, end: int) -> None:
    count = end - start
    for root in range(count // 2 - 1, -1, -1):
        _sink(columns, order, start, root, count)
    for last in range(count - 1, 0, -1):
        order[start], order[start + last] = order[start + last], order[start]
        _sink(columns, order, start, 0, last)


@kernel("int64[::1](int64[::1], int64)")
def _order_rows(columns: Any, count: int) -> Any:
    order, other = np.empty(count, np.int64), np.empty(count, np.int64)
    words, spare = np.empty((count, 2), np.uint64), np.empty((count, 2), np.uint64)
    key_bytes, offsets = columns[KEY_BYTES], columns[KEY_OFFSETS]
    shared = _shared_by_all(key_bytes, offsets, count)
    histogram = np.zeros((16, 256), np.int64)
    low = np.uint64(0xFF)
    for place in range(count):
        row = count - 1 - place  # the newest first, as rows usually arrive by seq
        start = load_i64(offsets + 8 * row) + shared
        size = load_i64(offsets + 8 * row + 8) - start
        order[place] = row
        words[place, 0] = word_of(key_bytes + start, size)
        words[place, 1] = word_of(key_bytes + start + _WORD_BYTES, size - _WORD_BYTES)
        for byte in range(8):
            histogram[byte, np.int64(words[place, 1] >> np.uint64(8 * byte) & low)] += 1
            histogram[8 + byte, np.int64(words[place, 0] >> np.uint64(8 * byte) & low)] += 1
    for byte in range(16):
        column, shift = 1 - byte // 8, np.uint64(8 * (byte % 8))
        if histogram[byte, np.int64(words[0, column] >> shift & low)] == count:
            continue
        at = 0
        for value in range(256):
            size = histogram[byte, value]
            histogram[byte, value] = at
            at += size
        for place in range(count):
            bucket = np.int64(words[place, column] >> shift & low)
            target = histogram[byte, bucket]
            histogram[byte, bucket] = target + 1
            spare[target, 0] = words[place, 0]
            spare[target, 1] = words[place, 1]
            other[target] = order[place]
        words, spare = spare, words
        order, other = other, order
    start = 0
    for place in range(1, count + 1):
        if place == count or words[place, 0] != words[start, 0] or words[place, 1] != words[start, 1]:
            if place - start > 1:
                _sort_in_full(columns, order, start, place)
            start = place
    return order


@kernel("void(int64[:, ::1], int64[::1], uint32[::1], int64[::1], int64[::1])")
def _take(tables: Any, starts: Any, owners: Any, order: Any, out: Any) -> None:
    """Copy rows of several tables of columns: row ``starts[i]`` is the first of table ``i == owners[row]``."""
    keys_at = 0
    values_at = 0
    for place in range(len(order)):
        table = owners[order[place]]
        row = order[place] - starts[table]
        start = load_i64(tables[table, KEY_OFFSETS] + 8 * row)
        size = load_i64(tables[table, KEY_OFFSETS] + 8 * row + 8) - start
        copy(out[KEY_BYTES] + keys_at, tables[table, KEY_BYTES] + start, size)
        keys_at += size
        start = load_i64(tables[table, VAL_OFFSETS] + 8 * row)
        size = load_i64(tables[table, VAL_OFFSETS] + 8 * row + 8) - start
        copy(out[VAL_BYTES] + values_at, tables[table, VAL_BYTES] + start, size)
        values_at += size
        store_i64(out[KEY_OFFSETS] + 8 * place + 8, keys_at)
        store_i64(out[VAL_OFFSETS] + 8 * place + 8, values_at)
        store_u64(out[SEQ] + 8 * place, load_u64(tables[table, SEQ] + 8 * row))
        store_u8(out[FLAGS] + place, load_u8(tables[table, FLAGS] + row))
        store_i64(out[CREATE_TS] + 8 * place, load_i64(tables[table, CREATE_TS] + 8 * row))
        store_i64(out[EXPIRE_TS] + 8 * place, load_i64(tables[table, EXPIRE_TS] + 8 * row))


@helper
def _compare_keys(columns: Any, left: int, right: int) -> int:
    """Negative, zero or positive, as the keys of two rows compare."""
    key_bytes, offsets = columns[KEY_BYTES], columns[KEY_OFFSETS]
    left_start, right_start = load_i64(offsets + 8 * left), load_i64(offsets + 8 * right)
    left_len = load_i64(offsets + 8 * left + 8) - left_start
    right_len = load_i64(offsets + 8 * right + 8) - right_start
    return compare_bytes(key_bytes + left_start, left_len, key_bytes + right_start, right_len)


@kernel("boolean(int64[::1], int64)")
def _is_ascending(columns: Any, count: int) -> Any:
    for row in range(1, count):  # noqa: SIM110  # a kernel makes no generators
        if _compare_keys(columns, row - 1, row) >= 0:
            return False
    return True


@kernel("int64(int64[::1], int64, int64[::1])")
def _keep_first(columns: Any, count: int, order: Any) -> Any:
    kept = min(count, 1)
    for place in range(1, count):
        if _compare_keys(columns, order[kept - 1], order[place]) != 0:
            order[kept] = order[place]
            kept += 1
    return kept


def is_ascending(rows: Rows) -> bool:
    """Whether every key is greater than the one before."""
    return bool(_is_ascending(column_addresses(rows), len(rows)))


def distinct_order(rows: Rows) -> I64:
    """Like ``row_order``, with one row for each key: the one that ``row_order`` puts first."""
    order = row_order(rows)
    return order[: _keep_first(column_addresses(rows), len(rows), order)]


def row_order(rows: Rows) -> I64:
    """The places of the rows by key, then seq descending; of equal ones the later row comes first."""
    return _order_rows(column_addresses(rows), len(rows)) if len(rows) else np.zeros(0, np.int64)


def take_rows(rows: Rows, order: I64) -> Rows:
    """The rows at these places, in this order, in buffers of their own."""
    return take_from([rows], order)


def take_from(parts: Sequence[Rows], order: I64) -> Rows:
    """The same of rows that lie in several parts; places count through all of them."""
    order = np.ascontiguousarray(order, np.int64)
    counts = [len(rows) for rows in parts]
    assert not len(order) or 0 <= int(order.min()) <= int(order.max()) < sum(counts)
    keys_max = int(np.concatenate([np.diff(rows.key_offsets) for rows in parts])[order].sum())
    values_max = int(np.concatenate([np.diff(rows.val_offsets) for rows in parts])[order].sum())
    out = ColumnBuffers(len(order), keys_max, values_max)
    tables = np.stack([column_addresses(rows) for rows in parts])
    starts = np.cumsum([0, *counts[:-1]], dtype=np.int64)
    owners = np.repeat(np.arange(len(parts), dtype=np.uint32), counts)
    _take(tables, starts, owners, order, out.addresses)
    return out.rows(0, len(order))
