"""Kernels: columns to Python's own objects, for little more than what Python itself takes to make them.

The plain twin is ``shale.engine.scan.row_objects``.
"""

from shale.kernels.source.jit import inlined, kernel
from shale.kernels.source.memory import load_i64
from shale.kernels.source.python_objects import clear_error, drop, fill, new_bytes, new_tuple, put, untrack


@inlined
def _string(data: int, offsets: int, number: int) -> int:
    start = load_i64(offsets + 8 * number)
    return new_bytes(data + start, load_i64(offsets + 8 * number + 8) - start)


@kernel("i64(i64, i64, i64, i64)", holds_lock=True)
def put_strings(into: int, count: int, data: int, offsets: int) -> int:
    """Put the strings between offsets into a list.

    Args:
        into: the list, with ``count`` places.
        count: how many.
        data: address of the bytes.
        offsets: address of i64 (count + 1).

    Returns:
        how many were put: fewer if memory ran out.
    """
    for number in range(count):
        string = _string(data, offsets, number)
        if string == 0:
            clear_error()
            return number
        put(into, number, string)
    return count


@kernel("i64(i64, i64, i64, i64, i64, i64)", holds_lock=True)
def put_pairs(into: int, count: int, key_bytes: int, key_offsets: int, val_bytes: int, val_offsets: int) -> int:
    """Put keys with their values into a list, as tuples; arguments and result as for ``put_strings``."""
    for number in range(count):
        key = _string(key_bytes, key_offsets, number)
        value = _string(val_bytes, val_offsets, number) if key != 0 else 0
        pair = new_tuple(2) if value != 0 else 0
        if pair == 0:
            if key != 0:
                drop(key)
            if value != 0:
                drop(value)
            clear_error()
            return number
        fill(pair, 0, key)
        fill(pair, 1, value)
        untrack(pair)
        put(into, number, pair)
    return count
