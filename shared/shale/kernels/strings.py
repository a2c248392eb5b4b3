"""Lists of byte strings to columns."""

import numpy as np

from shale.kernels.columns import address_of, empty_bytes
from shale.kernels.dispatch import compiled, use_kernels
from shale.kernels.rows import I64, U8

_STEP_ROWS = 8192
"""Strings for which the interpreter lock is held at a time: up to 2 ms in plain Python, a tenth of it in a kernel."""


def strings_column(strings: list[bytes], start: int, end: int) -> tuple[U8, I64]:
    """Copy the strings ``[start, end)`` of a list to one buffer with offsets; may run in a thread.

    Args:
        strings: may grow meanwhile; strings in the range are neither replaced nor removed.
        start: number of the first string.
        end: number after the last one.
    """
    count = end - start
    offsets = np.zeros(count + 1, dtype=np.int64)
    if not use_kernels():
        return _plain_column(strings[start:end], offsets), offsets
    places = np.empty(count, np.int64)
    for first in range(0, count, _STEP_ROWS):
        last = min(first + _STEP_ROWS, count)
        found = compiled.find_strings(
            strings, start + first, start + last, address_of(places) + 8 * first, address_of(offsets) + 8 * first
        )
        if found < last - first:
            offsets[1:] = 0
            return _plain_column(strings[start:end], offsets), offsets  # joins what is not ``bytes``, too
    data = empty_bytes(int(offsets[-1]))
    # The list keeps the strings alive, so their bytes are copied without the interpreter lock.
    compiled.copy_strings(address_of(places), address_of(offsets), count, address_of(data))
    return data, offsets


def _plain_column(strings: list[bytes], offsets: I64) -> U8:
    count = len(strings)
    for start in range(0, count, _STEP_ROWS):
        step = strings[start : start + _STEP_ROWS]
        offsets[start + 1 : start + len(step) + 1] = np.fromiter(map(len, step), dtype=np.int64, count=len(step))
    np.cumsum(offsets, out=offsets)
    if count <= _STEP_ROWS:
        return np.frombuffer(b"".join(strings), dtype=np.uint8)
    data = np.empty(int(offsets[-1]), np.uint8)
    for start in range(0, count, _STEP_ROWS):
        step = strings[start : start + _STEP_ROWS]
        data[offsets[start] : offsets[start + len(step)]] = np.frombuffer(b"".join(step), np.uint8)
    return data
