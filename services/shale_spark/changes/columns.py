"""From changes to the columns of a stream: what was stored, what kind of change it is, and where it stood in the log.

A deletion has no value, and a merge operand is none that a codec could read: its bytes are in ``value``, the columns of
a value are null.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from shale.engine.row_order import take_rows
from shale.errors import InvalidRequestError
from shale.kernels.rows import Rows
from shale.types import FLAG_MERGE, FLAG_TOMBSTONE
from shale_spark.codecs import OnBad, ValueCodec
from shale_spark.codecs.codec import Mask
from shale_spark.source.columns import Columns, default_schema, refuse_nulls

OF_CHANGES: dict[str, Any] = {"op": pa.string(), "wal_id": pa.int64()}
"""The columns that only changes have."""
OPS = ("put", "delete", "merge")
_OF_EVERY_CHANGE = ("key", "seq", "create_ts", "expire_ts")


def changes_schema(value_format: str) -> str:
    """The columns of a stream whose reader was given no schema, as Spark writes them.

    Raises:
        InvalidRequestError: the format does not say which columns values have.
    """
    return f"{default_schema(value_format)}, op string, wal_id bigint"


@dataclass(frozen=True, slots=True, eq=False)
class ChangeColumns:
    """What to make of changes: the columns of ``schema``, a ``pyarrow.Schema`` as Spark wants it.

    ``of_all``, ``of_value`` and ``of_puts`` are its parts that every change has, that deletions have not, and that only
    puts have.
    """

    schema: Any
    of_all: Columns
    of_value: Columns
    of_puts: Columns

    @classmethod
    def of(cls, schema: Any, codec: ValueCodec, codec_name: str, on_bad: OnBad) -> "ChangeColumns":
        """Check that changes can have these columns.

        Raises:
            InvalidRequestError: a column has a type that it cannot have, or nothing says what it is.
        """
        for field in schema:
            if field.name in OF_CHANGES and field.type != OF_CHANGES[field.name]:
                raise InvalidRequestError(f"column {field.name!r} is {OF_CHANGES[field.name]}, not {field.type}")
        parts: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
        for field in schema:
            if field.name not in OF_CHANGES:
                part = 0 if field.name in _OF_EVERY_CHANGE else 1 if field.name == "value" else 2
                parts[part].append(field)
        checked = [Columns.of(pa.schema(fields), codec, codec_name, on_bad) for fields in parts]
        return cls(schema, *checked)

    def batch(self, wal_id: int, rows: Rows) -> Any:
        """The changes of one WAL file, or of a part of it, as one ``pyarrow.RecordBatch``.

        Raises:
            ValueRefused: see ``Columns.batch``; or a column that must not be null has nothing for this kind of change.
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


def _arrays(columns: Columns, rows: Rows, wanted: Mask) -> dict[str, Any]:
    """The columns by name, null for rows that are not wanted."""
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
