"""Kernels: the order of rows by (key, sequence number descending), and rows gathered in an order.

Keys of one database often begin alike, so the common prefix is skipped; the eight bytes behind it decide nearly every
comparison and travel with the row's number through a merge sort.  The plain twin is ``shale.engine.row_order``.
"""

from typing import Any

import numpy as np
from numba import njit

from shale.kernels.columns import KEY_BYTES, KEY_OFFSETS, SEQ, ColumnBuffers, column_addresses
from shale.kernels.fuse import compare_bytes, word_of
from shale.kernels.memory import copy, load_i64, load_u8, load_u64, store_i64, store_u8, store_u64
from shale.kernels.rows import I64, Rows

_RUN = 16
"""Runs of this many rows are made by insertion."""


@njit("int64(int64, int64, int64)", cache=True, nogil=True)
def common_prefix(keys: int, offsets: int, count: int) -> int:
    """How many bytes all keys begin with."""
    first = load_i64(offsets)
    shared = load_i64(offsets + 8) - first
    for row in range(1, count):
        start = load_i64(offsets + 8 * row)
        shared = min(shared, load_i64(offsets + 8 * row + 8) - start)
        at = 0
        while at < shared and load_u8(keys + start + at) == load_u8(keys + first + at):
            at += 1
        shared = at
        if shared == 0:
            break
    return shared


@njit("boolean(int64[::1], int64, uint64, int64, uint64, int64)", cache=True, nogil=True)
def _comes_after(columns: Any, skip: int, left_word: Any, left: int, right_word: Any, right: int) -> Any:
    if left_word != right_word:
        return left_word > right_word
    offsets = columns[KEY_OFFSETS]
    left_start, right_start = load_i64(offsets + 8 * left), load_i64(offsets + 8 * right)
    order = compare_bytes(
        columns[KEY_BYTES] + left_start + skip,
        load_i64(offsets + 8 * left + 8) - left_start - skip,
        columns[KEY_BYTES] + right_start + skip,
        load_i64(offsets + 8 * right + 8) - right_start - skip,
    )
    if order != 0:
        return order > 0
    return load_u64(columns[SEQ] + 8 * left) < load_u64(columns[SEQ] + 8 * right)


@njit("void(int64[::1], int64, uint64[:, ::1], int64[:, ::1], int64)", cache=True, nogil=True)
def sort_order(columns: Any, skip: int, words: Any, order: Any, count: int) -> None:
    """Sort row numbers; the result is ``order[0]``.

    Args:
        columns: addresses of the rows' columns.
        skip: bytes that all keys share.
        words: shape (2, n), working space.
        order: shape (2, n), working space.
        count: n, the number of rows.
    """
    offsets = columns[KEY_OFFSETS]
    for row in range(count):
        start = load_i64(offsets + 8 * row)
        words[0, row] = word_of(columns[KEY_BYTES] + start + skip, load_i64(offsets + 8 * row + 8) - start - skip)
        order[0, row] = row
    for begin in range(0, count, _RUN):
        for at in range(begin + 1, min(begin + _RUN, count)):
            word, row = words[0, at], order[0, at]
            place = at
            while place > begin and _comes_after(columns, skip, words[0, place - 1], order[0, place - 1], word, row):
                words[0, place] = words[0, place - 1]
                order[0, place] = order[0, place - 1]
                place -= 1
            words[0, place] = word
            order[0, place] = row
    source = 0
    width = _RUN
    while width < count:
        target = 1 - source
        for begin in range(0, count, 2 * width):
            middle, end = min(begin + width, count), min(begin + 2 * width, count)
            left, right, at = begin, middle, begin
            in_order = middle == end or not _comes_after(
                columns,
                skip,
                words[source, middle - 1],
                order[source, middle - 1],
                words[source, middle],
                order[source, middle],
            )
            if not in_order:
                while left < middle and right < end:
                    if _comes_after(
                        columns,
                        skip,
                        words[source, left],
                        order[source, left],
                        words[source, right],
                        order[source, right],
                    ):
                        words[target, at] = words[source, right]
                        order[target, at] = order[source, right]
                        right += 1
                    else:
                        words[target, at] = words[source, left]
                        order[target, at] = order[source, left]
                        left += 1
                    at += 1
            while left < middle:
                words[target, at] = words[source, left]
                order[target, at] = order[source, left]
                left += 1
                at += 1
            while right < end:
                words[target, at] = words[source, right]
                order[target, at] = order[source, right]
                right += 1
                at += 1
        source = target
        width *= 2
    if source == 1:
        for row in range(count):
            order[0, row] = order[1, row]


@njit("void(int64[::1], int64[::1], int64, int64[::1])", cache=True, nogil=True)
def gather(columns: Any, order: Any, count: int, out: Any) -> None:
    """Write the rows at these places, in this order; ``out`` has room for all of them."""
    for pair in (0, 2):
        at = 0
        for row in range(count):
            place = columns[pair + 1] + 8 * order[row]
            start = load_i64(place)
            size = load_i64(place + 8) - start
            copy(out[pair] + at, columns[pair] + start, size)
            at += size
            store_i64(out[pair + 1] + 8 * row + 8, at)
    for row in range(count):
        taken = order[row]
        store_u64(out[SEQ] + 8 * row, load_u64(columns[SEQ] + 8 * taken))
        store_u8(out[SEQ + 1] + row, load_u8(columns[SEQ + 1] + taken))
        store_i64(out[SEQ + 2] + 8 * row, load_i64(columns[SEQ + 2] + 8 * taken))
        store_i64(out[SEQ + 3] + 8 * row, load_i64(columns[SEQ + 3] + 8 * taken))


def row_order(rows: Rows) -> I64:
    """The numbers of the rows by key, then seq descending."""
    count = len(rows)
    if count == 0:
        return np.zeros(0, np.int64)
    columns = column_addresses(rows)
    skip = common_prefix(columns[KEY_BYTES], columns[KEY_OFFSETS], count)
    words, order = np.empty((2, count), np.uint64), np.empty((2, count), np.int64)
    sort_order(columns, skip, words, order, count)
    return order[0]


def take_rows(rows: Rows, order: I64) -> Rows:
    """Each row once, in this order, in buffers of their own."""
    assert len(order) == len(rows)
    keys, values = rows.key_offsets, rows.val_offsets
    room = ColumnBuffers(len(order), int(keys[-1] - keys[0]), int(values[-1] - values[0]))
    gather(column_addresses(rows), np.ascontiguousarray(order), len(order), room.addresses)
    return room.rows(0, len(order))
