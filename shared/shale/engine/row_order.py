"""Putting rows into the order of an SST: by key, then seq descending (docs/protocol.md 7.1)."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from shale.kernels.choice import use_kernels
from shale.kernels.rows import I64, U8, Rows, concat_rows, only_keys


def sort_rows(rows: Rows) -> Rows:
    """The same rows by key, then seq descending; rows of one key are told apart by their seq."""
    if len(rows) < 2:
        return rows
    if use_kernels(rows.size_bytes):
        from shale.kernels import sort

        return sort.take_rows(rows, sort.row_order(rows))
    return take_rows(rows, plain_order(rows))


def merged_parts(parts: Sequence[Rows]) -> Rows:
    """The rows of several parts, each in any order, as ``sort_rows`` puts them: a value is copied once.

    A part that is alone is sorted too.
    """
    parts = [part for part in parts if len(part)]
    if len(parts) < 2 or not use_kernels(sum(part.size_bytes for part in parts)):
        return sort_rows(concat_rows(parts))
    from shale.kernels import sort

    return sort.take_from(parts, sort.row_order(concat_rows([only_keys(part) for part in parts])))


def is_ascending(rows: Rows) -> bool:
    """Whether every key is greater than the one before; with kernels only."""
    from shale.kernels import sort

    return sort.is_ascending(rows)


def newest_of_each(rows: Rows) -> Rows:
    """By key one row each, the newest; of rows with one seq the later one is newer.  Without copying if that is it."""
    if use_kernels(rows.size_bytes):
        from shale.kernels import sort

        return rows if sort.is_ascending(rows) else sort.take_rows(rows, sort.distinct_order(rows))
    order = plain_order(rows)
    keys = [rows.key(place) for place in order.tolist()]
    is_first = np.array([place == 0 or keys[place] != keys[place - 1] for place in range(len(keys))], bool)
    return take_rows(rows, order[is_first])


def take_rows(rows: Rows, order: I64) -> Rows:
    """The rows at these places, in this order, in buffers of their own."""
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
    """The same rows from the last to the first."""
    order = np.arange(len(rows) - 1, -1, -1, dtype=np.int64)
    if use_kernels(rows.size_bytes):
        from shale.kernels import sort

        return sort.take_rows(rows, order)
    return take_rows(rows, order)


def plain_order(rows: Rows) -> I64:
    """The numbers of the rows by key, then seq descending, without kernels."""
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
