"""Search in sorted columns: the rows of a key range, and those up to a sequence number."""

import numpy as np

from shale.kernels import sort
from shale.kernels.dispatch import use_kernels
from shale.kernels.rows import Rows, entries_from_rows, rows_from_entries
from shale.types import U64_MAX, KeyRange


def lower_bound(rows: Rows, key: bytes, start: int = 0) -> int:
    """Return the first row at or after ``start`` whose key is at or above ``key``."""
    low, high = start, len(rows)
    while low < high:
        middle = (low + high) // 2
        if rows.key(middle) < key:
            low = middle + 1
        else:
            high = middle
    return low


def rows_in_range(rows: Rows, key_range: KeyRange) -> Rows:
    """Return the rows whose keys lie in the range; shares the buffers."""
    n_rows = len(rows)
    start, end = 0, n_rows
    first_key, end_key = key_range.first_key, key_range.end_key
    if n_rows and first_key is not None and rows.key(0) < first_key:
        start = lower_bound(rows, first_key)
    if n_rows and end_key is not None and rows.key(n_rows - 1) >= end_key:
        end = lower_bound(rows, end_key, start)
    return rows if end - start == n_rows else rows.slice(start, end)


def rows_up_to(rows: Rows, max_seq: int) -> Rows:
    """Return the rows with ``seq <= max_seq``; copies nothing if those are all."""
    if max_seq == U64_MAX or not len(rows) or int(rows.seq.max()) <= max_seq:
        return rows
    if use_kernels():
        return sort.take_rows(rows, np.flatnonzero(rows.seq <= np.uint64(max_seq)))
    return rows_from_entries([entry for entry in entries_from_rows(rows) if entry.seq <= max_seq])
