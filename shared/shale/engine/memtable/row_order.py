"""Sorts rows into the order of an SST: by key, then seq descending (docs/reference/protocol.md 7.1)."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from shale.kernels import sort
from shale.kernels.dispatch import use_kernels
from shale.kernels.rows import I64, U8, Rows, concat_rows, only_keys


def sort_rows(rows: Rows) -> Rows:
    """Sort rows by key, then seq descending; no (key, seq) occurs twice."""
    if len(rows) < 2:
        return rows
    return take_rows(rows, sort.row_order(rows) if use_kernels() else plain_order(rows))


def merged_parts(parts: Sequence[Rows]) -> Rows:
    """Merge and sort the rows of several parts, each in any order; every value is copied once."""
    parts = [part for part in parts if len(part)]
    if len(parts) < 2 or not use_kernels():
        return sort_rows(concat_rows(parts))
    return sort.take_from(parts, sort.row_order(concat_rows([only_keys(part) for part in parts])))


def is_ascending(rows: Rows) -> bool:
    """Return whether every key is greater than the one before; needs kernels."""
    return sort.is_ascending(rows)


def newest_of_each(rows: Rows) -> Rows:
    """Return the newest row of each key, in key order; of rows with one seq the later one is newer.

    Rows that already are in that form are not copied.
    """
    if use_kernels():
        return rows if sort.is_ascending(rows) else sort.take_rows(rows, sort.distinct_order(rows))
    order = plain_order(rows)
    keys = [rows.key(place) for place in order.tolist()]
    is_first = np.array([place == 0 or keys[place] != keys[place - 1] for place in range(len(keys))], bool)
    return take_rows(rows, order[is_first])


def take_rows(rows: Rows, order: I64) -> Rows:
    """Copy the rows at these places, in this order."""
    return sort.take_rows(rows, order) if use_kernels() else plain_take_rows(rows, order)


def plain_take_rows(rows: Rows, order: I64) -> Rows:
    """Copy the rows at these places, in this order, without kernels: takes eight times the memory of the rows."""
    key_bytes, key_offsets = _take_pieces(rows.key_bytes, rows.key_offsets, order)
    val_bytes, val_offsets = _take_pieces(rows.val_bytes, rows.val_offsets, order)
    return Rows(
        key_bytes=key_bytes,
        key_offsets=key_offsets,
        val_bytes=val_bytes,
        val_offsets=val_offsets,
        seq=rows.seq[order],
        flags=rows.flags[order],
        create_ts=rows.create_ts[order],
        expire_ts=rows.expire_ts[order],
    )


def reversed_rows(rows: Rows) -> Rows:
    """Return the rows from the last to the first."""
    return take_rows(rows, np.arange(len(rows) - 1, -1, -1, dtype=np.int64))


def plain_order(rows: Rows) -> I64:
    """Return the places of the rows by key, then seq descending, without kernels."""
    arena = rows.key_bytes.tobytes()
    bounds = rows.key_offsets.tolist()
    keys = [arena[start:end] for start, end in pairwise(bounds)]
    newest_first = np.argsort(rows.seq, kind="stable")[::-1].tolist()
    return np.array(sorted(newest_first, key=keys.__getitem__), dtype=np.int64)


def _take_pieces(data: U8, offsets: I64, order: I64) -> tuple[U8, I64]:
    starts = offsets[:-1][order]
    lengths = offsets[1:][order] - starts
    taken = np.zeros(len(order) + 1, np.int64)
    np.cumsum(lengths, out=taken[1:])
    # Byte i of the result comes from its piece's start plus its distance from the piece's new start.
    places = np.repeat(starts - taken[:-1], lengths) + np.arange(taken[-1])
    return data[places], taken
