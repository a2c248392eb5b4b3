"""Kernels: lists of bytes objects to columns.

The plain twin is in ``shale.kernels.strings``.
"""

from shale.kernels.source.jit import kernel
from shale.kernels.source.memory import copy, load_i64, store_i64
from shale.kernels.source.python_objects import bytes_at, clear_error


@kernel("i64(object, i64, i64, i64, i64)", holds_lock=True)
def find_strings(strings: int, first: int, end: int, places: int, offsets: int) -> int:
    """Note where strings are, and where each one ends in a column.

    Args:
        strings: list of bytes objects, which stay alive until their bytes are copied.
        first: number of the first string.
        end: number after the last one.
        places: address for the addresses, i64 (end - first).
        offsets: address of i64 (end - first + 1), of which the first is set.

    Returns:
        how many were found: fewer if an object is not bytes.
    """
    total = load_i64(offsets)
    for number in range(end - first):
        place, size = bytes_at(strings, first + number)
        if size < 0:
            clear_error()
            return number
        total += size
        store_i64(places + 8 * number, place)
        store_i64(offsets + 8 * number + 8, total)
    return end - first


@kernel("void(i64, i64, i64, i64)")
def copy_strings(places: int, offsets: int, count: int, into: int) -> None:
    """Copy strings to a column, without the interpreter lock.

    Args:
        places: address of their addresses, i64 (count).
        offsets: address of i64 (count + 1): where each one goes; the first goes to the front.
        count: how many.
        into: address of the column.
    """
    at = into - load_i64(offsets)
    for number in range(count):
        start = load_i64(offsets + 8 * number)
        copy(at + start, load_i64(places + 8 * number), load_i64(offsets + 8 * number + 8) - start)
