"""Columns of rows as kernels read them: eight addresses, in the order of the constants."""

import numpy as np

from shale.kernels.rows import I64, U8, Rows

KEY_BYTES = 0
KEY_OFFSETS = 1
VAL_BYTES = 2
VAL_OFFSETS = 3
SEQ = 4
FLAGS = 5
CREATE_TS = 6
EXPIRE_TS = 7
COLUMNS = 8

PAGE_BYTES = 4096
SLACK = 16
"""Bytes that buffers have after their end, because ``copy_loose`` writes beyond it."""


def address_of(array: np.ndarray) -> int:
    """Where the data of an array begins; its owner must stay alive while a kernel uses it."""
    address: int = array.__array_interface__["data"][0]
    return address


def column_addresses(rows: Rows) -> I64:
    """Return the table of addresses of ``rows``, shape (8,)."""
    columns = (
        rows.key_bytes,
        rows.key_offsets,
        rows.val_bytes,
        rows.val_offsets,
        rows.seq,
        rows.flags,
        rows.create_ts,
        rows.expire_ts,
    )
    assert all(column.flags.c_contiguous for column in columns)
    return np.array([address_of(column) for column in columns], np.int64)


class ColumnBuffers:
    """Buffers for rows that a kernel writes.

    ``rows_max`` rows, ``keys_max`` and ``values_max`` bytes; pages that no row reaches take no memory.
    """

    def __init__(self, rows_max: int, keys_max: int, values_max: int) -> None:
        self.rows_max = rows_max
        self.keys_max = keys_max
        self.values_max = values_max
        self._rows = Rows(
            key_bytes=np.empty(keys_max + SLACK, np.uint8),
            key_offsets=np.empty(rows_max + 1, np.int64),
            val_bytes=np.empty(values_max + SLACK, np.uint8),
            val_offsets=np.empty(rows_max + 1, np.int64),
            seq=np.empty(rows_max, np.uint64),
            flags=np.empty(rows_max, np.uint8),
            create_ts=np.empty(rows_max, np.int64),
            expire_ts=np.empty(rows_max, np.int64),
        )
        self._rows.key_offsets[0] = 0
        self._rows.val_offsets[0] = 0
        self.addresses = column_addresses(self._rows)

    def put(self, rows: Rows) -> None:
        """Copy these rows to the front of the buffers."""
        into, count = self._rows, len(rows)
        for data, offsets, source, places in (
            (into.key_bytes, into.key_offsets, rows.key_bytes, rows.key_offsets),
            (into.val_bytes, into.val_offsets, rows.val_bytes, rows.val_offsets),
        ):
            offsets[: count + 1] = places - places[0]
            data[: offsets[count]] = source[places[0] : places[-1]]
        into.seq[:count] = rows.seq
        into.flags[:count] = rows.flags
        into.create_ts[:count] = rows.create_ts
        into.expire_ts[:count] = rows.expire_ts

    def rows(self, start: int, end: int) -> Rows:
        """Return the rows ``[start, end)`` that a kernel has written; they share the buffers."""
        return self._rows.slice(start, end)


def empty_bytes(size: int) -> U8:
    """Return a buffer that is followed by slack."""
    return np.empty(size + SLACK, np.uint8)[:size]


def empty_bytes_at(size: int, offset: int) -> U8:
    """Return a buffer with slack whose address has the alignment of byte ``offset`` of a file in its page.

    Such bytes can be written there past the page cache, in whole pages, without a copy.
    """
    buffer = empty_bytes(size + PAGE_BYTES - 1)
    start = (offset - address_of(buffer)) % PAGE_BYTES
    return buffer[start : start + size]
