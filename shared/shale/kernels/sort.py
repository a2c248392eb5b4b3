"""Sorts rows with kernels, into the order of an SST, by key and then seq descending (docs/reference/protocol.md 7.1).

The first 16 bytes after the common prefix of all keys are sorted byte by byte, from the last to the first, each stable
(radix sort); rows that are still equal are compared in full.  The plain twin is
``shale.engine.memtable.row_order``.
"""

from collections.abc import Sequence

import numpy as np

from shale.kernels.columns import ColumnBuffers, address_of, column_addresses
from shale.kernels.dispatch import compiled
from shale.kernels.rows import I64, Rows

HISTOGRAM_WORDS = 16 * 256
"""Of the radix sort: a count per byte of the key's first 16, and value."""


def is_ascending(rows: Rows) -> bool:
    """Return whether every key is greater than the one before."""
    columns = column_addresses(rows)
    return compiled.is_ascending(address_of(columns), len(rows))


def distinct_order(rows: Rows) -> I64:
    """Return the order of ``row_order`` with one row for each key: the first one."""
    order, columns = row_order(rows), column_addresses(rows)
    return order[: compiled.keep_first(address_of(columns), len(rows), address_of(order))]


def row_order(rows: Rows) -> I64:
    """Return the places of the rows by key, then seq descending; of equal ones the later row comes first."""
    count = len(rows)
    if not count:
        return np.zeros(0, np.int64)
    columns = column_addresses(rows)
    scratch = np.empty(6 * count + HISTOGRAM_WORDS, np.int64)
    scratch[6 * count :] = 0
    half = compiled.order_rows(address_of(columns), count, address_of(scratch))
    return scratch[half * count : (half + 1) * count].copy()  # not a view, which would keep all of the scratch


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
    compiled.take_rows(
        address_of(tables),
        address_of(starts),
        address_of(owners),
        address_of(order),
        len(order),
        address_of(out.addresses),
    )
    return out.rows(0, len(order))
