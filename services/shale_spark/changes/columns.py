"""Conversion of changes to the columns of a stream: the row, the kind of change, and its WAL file.

A deletion has no value.  A merge operand is no value that a codec could decode: its bytes are in ``value``, and the
columns of a value are null.
"""

from typing import Any

import numpy as np
import pyarrow as pa

from shale.core.lazy_dataclass import dataclass
from shale.engine.memtable.row_order import take_rows
from shale.errors import InvalidRequestError
from shale.kernels.rows import Rows
from shale.types import FLAG_MERGE, FLAG_TOMBSTONE
from shale_spark.codecs import OnDecodeError, ValueCodec
from shale_spark.codecs.codec import Mask
from shale_spark.source.columns import ReadColumns, default_schema, refuse_nulls

CHANGE_COLUMNS: dict[str, Any] = {"op": pa.string(), "wal_id": pa.int64()}
"""The columns that only changes have."""
OPS = ("put", "delete", "merge")
_COLUMNS_OF_EVERY_CHANGE = ("key", "seq", "create_ts", "expire_ts")


def changes_schema(value_format: str) -> str:
    """Return the columns of a stream without an explicit schema, as a DDL string.

    Raises:
        InvalidRequestError: the format does not say which columns values have.
    """
    return f"{default_schema(value_format)}, op string, wal_id bigint"


@dataclass(frozen=True, slots=True, eq=False)
class ChangeColumns:
    """The columns of a stream of changes.

    Args:
        schema: a ``pyarrow.Schema`` as Spark wants it.
        of_all: its columns that every change has.
        of_value: its columns that deletions lack.
        of_puts: its columns that only puts have.
    """

    schema: Any
    of_all: ReadColumns
    of_value: ReadColumns
    of_puts: ReadColumns

    @classmethod
    def of(cls, schema: Any, codec: ValueCodec, codec_name: str, on_decode_error: OnDecodeError) -> "ChangeColumns":
        """Check that changes can have these columns.

        Raises:
            InvalidRequestError: a column has an unsupported type or an unknown name.
        """
        for field in schema:
            if field.name in CHANGE_COLUMNS and field.type != CHANGE_COLUMNS[field.name]:
                raise InvalidRequestError(f"column {field.name!r} is {CHANGE_COLUMNS[field.name]}, not {field.type}")
        parts: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
        for field in schema:
            if field.name not in CHANGE_COLUMNS:
                part = 0 if field.name in _COLUMNS_OF_EVERY_CHANGE else 1 if field.name == "value" else 2
                parts[part].append(field)
        checked = [ReadColumns.of(pa.schema(fields), codec, codec_name, on_decode_error) for fields in parts]
        return cls(schema, *checked)

    def batch(self, wal_id: int, rows: Rows) -> Any:
        """Return the changes of one WAL file, or of a part of it, as one ``pyarrow.RecordBatch``.

        Raises:
            InvalidValue: see ``ReadColumns.batch``; or a non-nullable column is null for this kind of change.
        """
        deletes = rows.flags & FLAG_TOMBSTONE != 0
        merges = rows.flags & FLAG_MERGE != 0
        arrays = {
            "op": _ops(deletes, merges),
            "wal_id": pa.array(np.full(len(rows), wal_id, np.int64)),
            **_arrays(self.of_all, rows, np.ones(len(rows), np.bool_)),
            **_arrays(self.of_value, rows, ~deletes),
            **_arrays(self.of_puts, rows, ~(deletes | merges)),
        }
        refuse_nulls(self.schema, arrays, rows)
        return pa.RecordBatch.from_arrays([arrays[name] for name in self.schema.names], schema=self.schema)


def _ops(deletes: Mask, merges: Mask) -> Any:
    codes = pa.array(deletes.astype(np.int8) + 2 * merges.astype(np.int8))
    return pa.DictionaryArray.from_arrays(codes, pa.array(OPS)).cast(pa.string())


def _arrays(columns: ReadColumns, rows: Rows, wanted: Mask) -> dict[str, Any]:
    """Return the columns by name, null for the rows that are not wanted."""
    names = columns.schema.names
    if not names:
        return {}
    if wanted.all():
        return dict(zip(names, columns.batch(rows).columns, strict=True))
    places = np.flatnonzero(wanted)
    if not len(places):
        return {field.name: pa.nulls(len(rows), field.type) for field in columns.schema}
    found = columns.batch(take_rows(rows, places)).columns
    sources = pa.array(np.cumsum(wanted) - 1, mask=~wanted)
    return {name: array.take(sources) for name, array in zip(names, found, strict=True)}
