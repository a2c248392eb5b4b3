"""Conversion between rows, Spark schemas and Arrow, without copying keys and values.

``Rows`` stores its columns as Arrow stores ``binary``: bytes and offsets.  Only the offsets are computed anew, because
Arrow counts 32-bit offsets from the beginning of a batch.
"""

from collections.abc import Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from shale.engine.arrow.batches import binary_column
from shale.errors import InvalidRequestError
from shale.kernels.rows import I64, U8, U64, Rows
from shale.types import FLAG_CREATE_TS, FLAG_EXPIRE_TS, FLAG_TOMBSTONE

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

TIMESTAMP = pa.timestamp("us", tz="UTC")
COLUMNS: dict[str, Any] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "seq": pa.int64(),
    "create_ts": TIMESTAMP,
    "expire_ts": TIMESTAMP,
}
"""The columns of rows with the types that Spark expects."""

_MS_MAX = (2**63 - 1) // 1000
_STRINGS = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string, pa.types.is_large_string)


def arrow_schema(schema: "StructType") -> Any:
    """Return the columns of a Spark schema as a ``pyarrow.Schema``; timestamps are in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    # PySpark 4.1 always uses UTC; 4.2 and later take the time zone as an argument.
    options: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(schema, **options)


def rows_to_batch(rows: Rows, columns: Sequence[str]) -> Any:
    """Return a ``pyarrow.RecordBatch`` of these columns, in this order; keys and values share the memory of the rows.

    Args:
        rows: values only, with fewer than 2 GiB of keys and of values: see ``in_batches``.
        columns: names in ``COLUMNS``.
    """
    arrays = [_column(rows, name) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([(name, COLUMNS[name]) for name in columns]))


def batch_to_rows(batch: Any, *, seq: U64 | None = None) -> Rows:
    """Return the rows of a record batch, in its order; keys and values share its memory where Arrow allows.

    Args:
        batch: with ``key`` and ``value`` (``binary``, ``string`` or their large forms), and optionally ``seq``,
            ``create_ts`` and ``expire_ts`` (timestamps, or int64 of milliseconds).  A null value deletes its key.
        seq: shape (n,), the sequence numbers; by default the column ``seq``, else 0.

    Raises:
        InvalidRequestError: a column is missing or of another type, or a key is null; names the row.
    """
    names = set(batch.schema.names)
    keys, values = _binary(batch, "key"), _binary(batch, "value")
    if keys.null_count:
        raise InvalidRequestError(f"row {int(np.flatnonzero(_is_null(keys))[0])} has no key")
    flags = np.zeros(len(batch), np.uint8)
    if values.null_count:
        flags[_is_null(values)] |= FLAG_TOMBSTONE
        values = values.fill_null(b"")
    if seq is None:
        seq = _seqs(batch) if "seq" in names else np.zeros(len(batch), np.uint64)
    key_bytes, key_offsets = _pieces(keys)
    val_bytes, val_offsets = _pieces(values)
    return Rows(
        key_bytes=key_bytes,
        key_offsets=key_offsets,
        val_bytes=val_bytes,
        val_offsets=val_offsets,
        seq=seq,
        flags=flags,
        create_ts=_stamps(batch, "create_ts", flags, FLAG_CREATE_TS),
        expire_ts=_stamps(batch, "expire_ts", flags, FLAG_EXPIRE_TS),
    )


def _column(rows: Rows, name: str) -> Any:
    match name:
        case "key":
            return binary_column(rows.key_bytes, rows.key_offsets)
        case "value":
            return binary_column(rows.val_bytes, rows.val_offsets)
        case "seq":
            return pa.array(rows.seq.view(np.int64))
        case "create_ts":
            return _times(rows.create_ts, rows.flags & FLAG_CREATE_TS == 0)
        case _:
            return _times(rows.expire_ts, rows.flags & FLAG_EXPIRE_TS == 0)


def _times(stamps_ms: I64, absent: Any) -> Any:
    # Timestamps beyond the year 290,000 do not fit into int64 microseconds; they are clamped to the last that does.
    stamps_us = np.clip(stamps_ms, -_MS_MAX, _MS_MAX) * 1000
    return pa.array(stamps_us, pa.int64(), mask=absent).cast(TIMESTAMP)


def _binary(batch: Any, name: str) -> Any:
    if name not in batch.schema.names:
        raise InvalidRequestError(f"there is no column {name!r}: the columns are {', '.join(batch.schema.names)}")
    column = batch.column(name)
    if pa.types.is_binary_view(column.type) or pa.types.is_string_view(column.type):
        return column.cast(pa.large_binary())
    if not any(is_a(column.type) for is_a in _STRINGS):
        raise InvalidRequestError(f"column {name!r} is {column.type}: it must be binary or string")
    return column


def _pieces(column: Any) -> tuple[U8, I64]:
    """Return the bytes of a column and the offsets between its values, as ``Rows`` stores them."""
    _, places, data = column.buffers()
    is_large = pa.types.is_large_binary(column.type) or pa.types.is_large_string(column.type)
    if places is None:
        return np.zeros(0, np.uint8), np.zeros(1, np.int64)
    dtype = np.int64 if is_large else np.int32
    offsets = np.frombuffer(places, dtype)[column.offset : column.offset + len(column) + 1]
    bytes_ = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return bytes_, np.ascontiguousarray(offsets, np.int64) if len(offsets) else np.zeros(1, np.int64)


def _seqs(batch: Any) -> U64:
    column = batch.column("seq")
    if not pa.types.is_integer(column.type) or column.null_count:
        raise InvalidRequestError("column 'seq' must hold an integer in every row")
    return column.cast(pa.uint64()).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _stamps(batch: Any, name: str, flags: U8, flag: int) -> I64:
    """Return milliseconds, 0 where the column is null, and set ``flag`` for the other rows."""
    if name not in batch.schema.names:
        return np.zeros(len(batch), np.int64)
    column = batch.column(name)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False).cast(pa.int64())
    elif not pa.types.is_integer(column.type):
        raise InvalidRequestError(f"column {name!r} is {column.type}: it must be a timestamp or milliseconds")
    flags[~_is_null(column)] |= flag
    stamps: I64 = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return stamps


def _is_null(column: Any) -> Any:
    return column.is_null().to_numpy(zero_copy_only=False)
