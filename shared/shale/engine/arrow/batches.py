"""Rows as Arrow batches that share the bytes of keys and values.

``Rows`` lays a column out as Arrow lays out ``binary``: bytes and offsets.  Only the offsets are copied, because
Arrow counts them with 32 bits from the beginning of a batch.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from shale.errors import InvalidRequestError
from shale.kernels.rows import I64, U8, Rows
from shale.types import FLAG_CREATE_TS, FLAG_EXPIRE_TS

try:
    import pyarrow as pa
except ImportError:
    raise InvalidRequestError("Arrow needs the package pyarrow: pip install 'shale[arrow]'") from None

if TYPE_CHECKING:
    from pyarrow import RecordBatch as RecordBatch  # noqa: PLC0414 - scans name it: only this package imports pyarrow
    from pyarrow import Table as Table  # noqa: PLC0414

TIMESTAMP = pa.timestamp("ms", tz="UTC")
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("seq", pa.uint64()),
        ("create_ts", TIMESTAMP),
        ("expire_ts", TIMESTAMP),
    ]
)
"""The schema of scans."""

_NULLS = 64 << 10
BYTES_MAX = 2**31 - 1
"""Limit of the key bytes, and of the value bytes, of one batch."""


def rows_to_batches(rows: Rows) -> "Iterator[RecordBatch]":
    """Yield ``pyarrow.RecordBatch``es of values, in order: one, unless they have more than 2 GiB."""
    for part in in_batches(rows, rows_max=len(rows), bytes_max=BYTES_MAX):
        yield pa.RecordBatch.from_arrays(
            [
                binary_column(part.key_bytes, part.key_offsets),
                binary_column(part.val_bytes, part.val_offsets),
                pa.Array.from_buffers(pa.uint64(), len(part), [None, pa.py_buffer(part.seq)]),
                _times(part, part.create_ts, FLAG_CREATE_TS),
                _times(part, part.expire_ts, FLAG_EXPIRE_TS),
            ],
            schema=SCHEMA,
        )


def batches_to_table(batches: "Sequence[RecordBatch]") -> "Table":
    """Return one ``pyarrow.Table`` of any number of batches."""
    return pa.Table.from_batches(batches, schema=SCHEMA)


def in_batches(rows: Rows, *, rows_max: int, bytes_max: int) -> Iterator[Rows]:
    """Yield slices of at most so many rows and bytes, each with at least one row."""
    if 0 < len(rows) <= rows_max and rows.size_bytes <= bytes_max:
        yield rows
        return
    sizes = rows.key_offsets + rows.val_offsets
    start = 0
    while start < len(rows):
        full = int(np.searchsorted(sizes, sizes[start] + bytes_max, "right")) - 1
        end = min(max(full, start + 1), start + rows_max, len(rows))
        yield rows.slice(start, end)
        start = end


def binary_column(data: U8, offsets: I64) -> Any:
    """Return a ``pyarrow`` array of the values between the offsets, which shares ``data``.

    Raises:
        InvalidRequestError: the values have more than 2 GiB; after ``in_batches`` that is a single value.
    """
    first, last = int(offsets[0]), int(offsets[-1])
    if last - first > BYTES_MAX:
        raise InvalidRequestError(f"{last - first} bytes do not fit into one Arrow column of 2 GiB")
    places = (offsets - first if first else offsets).astype(np.int32)
    buffers = [None, pa.py_buffer(places), pa.py_buffer(data[first:last])]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


@cache
def _nulls() -> Any:
    """Return a column of nulls, which all batches of rows that do not expire share."""
    return pa.nulls(_NULLS, TIMESTAMP)


def _times(rows: Rows, stamps_ms: I64, flag: int) -> Any:
    present = rows.flags & np.uint8(flag) != 0
    if present.all():
        return pa.Array.from_buffers(TIMESTAMP, len(rows), [None, pa.py_buffer(stamps_ms)])
    if len(rows) <= _NULLS and not present.any():
        return _nulls().slice(0, len(rows))
    validity = np.packbits(present, bitorder="little")
    return pa.Array.from_buffers(TIMESTAMP, len(rows), [pa.py_buffer(validity), pa.py_buffer(stamps_ms)])
