"""Cutting sorted columns: the rows in a range of keys, and those up to a sequence number."""

import numpy as np

from shale.kernels.choice import use_kernels
from shale.kernels.rows import Rows, entries_from_rows, rows_from_entries
from shale.types import U64_MAX, KeyRange


def lower_bound(rows: Rows, key: bytes, start: int = 0) -> int:
    """The first row at or after ``start`` whose key is not below ``key``."""
    low, high = start, len(rows)
    while low < high:
        middle = (low + high) // 2
        if rows.key(middle) < key:
            low = middle + 1
        else:
            high = middle
    return low


def rows_in_range(rows: Rows, key_range: KeyRange) -> Rows:
    """The rows whose keys lie in the range; shares the buffers."""
    n_rows = len(rows)
    start, end = 0, n_rows
    first_key, end_key = key_range.first_key, key_range.end_key
    if n_rows and first_key is not None and rows.key(0) < first_key:
        start = lower_bound(rows, first_key)
    if n_rows and end_key is not None and rows.key(n_rows - 1) >= end_key:
        end = lower_bound(rows, end_key, start)
    return rows if end - start == n_rows else rows.slice(start, end)


def rows_up_to(rows: Rows, max_seq: int) -> Rows:
    """The rows with ``seq <= max_seq``.  Usually all of them, and then nothing is copied."""
    if max_seq == U64_MAX or not len(rows) or int(rows.seq.max()) <= max_seq:
        return rows
    if use_kernels(rows.size_bytes):
        from shale.kernels import sort

        return sort.take_rows(rows, np.flatnonzero(rows.seq <= np.uint64(max_seq)))
    return rows_from_entries([entry for entry in entries_from_rows(rows) if entry.seq <= max_seq])
