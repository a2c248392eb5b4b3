"""From rows to the columns that a DataFrame's schema asks for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from shale.errors import InvalidRequestError
from shale.kernels.rows import Rows
from shale_spark.arrow import COLUMNS, rows_to_batch
from shale_spark.codecs import OnBad, ValueCodec, ValueRefused
from shale_spark.codecs.codec import Mask, no_bad, refuse_bad, show_key
from shale_spark.codecs.plain import as_text

CORRUPT = "_corrupt_record"
"""The column that holds values that were not understood."""
_TEXT = ("key", "value")
_ONE_COLUMN = ("binary", "utf8")


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """What to make of rows: the columns of ``schema``, a ``pyarrow.Schema`` as Spark wants it.

    ``of_value`` is the part of the schema that the codec fills.
    """

    schema: Any
    of_value: Any
    codec: ValueCodec
    codec_name: str
    on_bad: OnBad

    @classmethod
    def of(cls, schema: Any, codec: ValueCodec, codec_name: str, on_bad: OnBad) -> "Columns":
        """Check that rows can have these columns.

        Raises:
            InvalidRequestError: a column has a type that it cannot have, or nothing says what it is.
        """
        for field in schema:
            _check_type(field)
        of_value = pa.schema([field for field in schema if field.name not in COLUMNS and field.name != CORRUPT])
        if len(of_value):
            if codec_name in _ONE_COLUMN:
                raise InvalidRequestError(
                    f"column {of_value.field(0).name!r}: values of format {codec_name} have no columns; "
                    "say with value_format what they hold"
                )
            codec.check(of_value)
        elif CORRUPT in schema.names:
            raise InvalidRequestError(f"column {CORRUPT} belongs to columns that are decoded from values")
        return cls(schema, of_value, codec, codec_name, on_bad)

    def batch(self, rows: Rows) -> Any:
        """The rows as one ``pyarrow.RecordBatch``.

        Raises:
            ValueRefused: a value, or a key that shall be text, is not what the schema says, and ``on_bad`` is failfast.
        """
        names = [name for name in self.schema.names if name in COLUMNS]
        needed = names + [name for name in _TEXT if name not in names and len(self.of_value)]
        stored = rows_to_batch(rows, needed)
        arrays = {name: stored.column(name) for name in needed}
        bad = no_bad(len(rows))
        decoded = None
        if len(self.of_value):
            decoded = self.codec.decode(arrays["value"], self.of_value)
            bad = decoded.bad
            if self.on_bad is OnBad.FAILFAST:
                refuse_bad(decoded, arrays["key"], self.codec_name)
            arrays |= dict(zip(self.of_value.names, decoded.columns.columns, strict=True))
        if CORRUPT in self.schema.names:
            arrays[CORRUPT] = _only(stored.column("value"), bad)
        for name in _TEXT:
            if name in names and pa.types.is_string(self.schema.field(name).type):
                arrays[name] = self._text(name, stored.column(name), rows.key)
        return self._built(arrays, rows)

    def _text(self, name: str, stored: Any, key_at: Callable[[int], bytes]) -> Any:
        text, bad = as_text(stored)
        if self.on_bad is OnBad.FAILFAST and bad.any():
            place = int(np.argmax(bad))
            what = "key" if name == "key" else "the value of key"
            raise ValueRefused(f"{what} {show_key(key_at(place))} is not UTF-8: read {name} as binary")
        return text

    def _built(self, arrays: dict[str, Any], rows: Rows) -> Any:
        refuse_nulls(self.schema, arrays, rows)
        return pa.RecordBatch.from_arrays([arrays[name] for name in self.schema.names], schema=self.schema)


def refuse_nulls(schema: Any, arrays: Mapping[str, Any], rows: Rows) -> None:
    """Return if no column that must not be null is; Spark would believe the schema and read what is not there.

    Raises:
        ValueRefused: names the column, and the key of its first null.
    """
    for field in schema:
        if not field.nullable and arrays[field.name].null_count:
            place = arrays[field.name].is_null().index(True).as_py()
            raise ValueRefused(f"column {field.name!r} is null for key {show_key(rows.key(place))}, and must not be")


def default_schema(value_format: str) -> str:
    """The columns of a DataFrame whose reader was given no schema, as Spark writes them.

    Raises:
        InvalidRequestError: the format does not say which columns values have.
    """
    if value_format not in _ONE_COLUMN:
        raise InvalidRequestError(f"values of format {value_format} have columns: name them with .schema(…)")
    value = "string" if value_format == "utf8" else "binary"
    return f"key binary, value {value}, seq bigint, create_ts timestamp, expire_ts timestamp"


def _check_type(field: Any) -> None:
    if field.name == CORRUPT:
        allowed = [pa.binary()]
    elif field.name in COLUMNS:
        allowed = [COLUMNS[field.name], *([pa.string()] if field.name in _TEXT else [])]
    else:
        return
    if field.type not in allowed:
        raise InvalidRequestError(f"column {field.name!r} is {' or '.join(map(str, allowed))}, not {field.type}")


def _only(values: Any, bad: Mask) -> Any:
    """The values that were not understood; null elsewhere."""
    return pa.compute.if_else(pa.array(bad), values, pa.nulls(len(values), pa.binary()))
