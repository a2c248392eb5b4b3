"""Conversion of rows to the columns of a DataFrame's schema."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from shale.core.lazy_dataclass import dataclass
from shale.errors import InvalidRequestError
from shale.kernels.rows import Rows
from shale_spark.arrow import COLUMNS, arrow_schema, rows_to_batch
from shale_spark.codecs import InvalidValue, OnDecodeError, ValueCodec
from shale_spark.codecs.codec import Mask, no_failures, require_decoded, show_key
from shale_spark.codecs.plain_codecs import as_text
from shale_spark.source.options import SparkReadOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

CORRUPT = "_corrupt_record"
"""The column that holds values that could not be decoded."""
_TEXT = ("key", "value")
_ONE_COLUMN = ("binary", "utf8")


@dataclass(frozen=True, slots=True, eq=False)
class ReadColumns:
    """The columns of ``schema``, a ``pyarrow.Schema`` as Spark wants it.

    ``of_value`` is the part of the schema that the codec fills.
    """

    schema: Any
    of_value: Any
    codec: ValueCodec
    codec_name: str
    on_decode_error: OnDecodeError

    @classmethod
    def of(cls, schema: Any, codec: ValueCodec, codec_name: str, on_decode_error: OnDecodeError) -> "ReadColumns":
        """Check that rows can have these columns.

        Raises:
            InvalidRequestError: a column has an unsupported type or an unknown name.
        """
        for field in schema:
            _check_type(field)
        of_value = pa.schema([field for field in schema if field.name not in COLUMNS and field.name != CORRUPT])
        if len(of_value):
            if codec_name in _ONE_COLUMN:
                raise InvalidRequestError(
                    f"column {of_value.field(0).name!r}: values of format {codec_name} have no columns; "
                    "set value_format to the format of the values"
                )
            codec.check(of_value)
        elif CORRUPT in schema.names:
            raise InvalidRequestError(f"column {CORRUPT} needs columns that are decoded from values")
        return cls(schema, of_value, codec, codec_name, on_decode_error)

    def batch(self, rows: Rows) -> Any:
        """Return the rows as one ``pyarrow.RecordBatch``.

        Raises:
            InvalidValue: a value, or a key that must be text, does not match the schema, and ``on_decode_error`` is
                failfast.
        """
        names = [name for name in self.schema.names if name in COLUMNS]
        needed = names + [name for name in _TEXT if name not in names and len(self.of_value)]
        stored = rows_to_batch(rows, needed)
        arrays = {name: stored.column(name) for name in needed}
        bad = no_failures(len(rows))
        decoded = None
        if len(self.of_value):
            decoded = self.codec.decode(arrays["value"], self.of_value)
            bad = decoded.bad
            if self.on_decode_error is OnDecodeError.FAILFAST:
                require_decoded(decoded, arrays["key"], self.codec_name)
            arrays |= dict(zip(self.of_value.names, decoded.columns.columns, strict=True))
        if CORRUPT in self.schema.names:
            arrays[CORRUPT] = _only(stored.column("value"), bad)
        for name in _TEXT:
            if name in names and pa.types.is_string(self.schema.field(name).type):
                arrays[name] = self._text(name, stored.column(name), rows.key)
        return self._built(arrays, rows)

    def _text(self, name: str, stored: Any, key_at: Callable[[int], bytes]) -> Any:
        text, bad = as_text(stored)
        if self.on_decode_error is OnDecodeError.FAILFAST and bad.any():
            place = int(np.argmax(bad))
            what = "key" if name == "key" else "the value of key"
            raise InvalidValue(f"{what} {show_key(key_at(place))} is not UTF-8: read {name} as binary")
        return text

    def _built(self, arrays: dict[str, Any], rows: Rows) -> Any:
        refuse_nulls(self.schema, arrays, rows)
        return pa.RecordBatch.from_arrays([arrays[name] for name in self.schema.names], schema=self.schema)


def columns_of(schema: "StructType", options: SparkReadOptions) -> ReadColumns:
    """Return the columns that a DataFrame asks for.

    Raises:
        InvalidRequestError: rows cannot have them.
    """
    return ReadColumns.of(arrow_schema(schema), options.codec(), options.value_format, options.on_decode_error)


def refuse_nulls(schema: Any, arrays: Mapping[str, Any], rows: Rows) -> None:
    """Return if no non-nullable column has a null, which Spark would read as a value.

    Raises:
        InvalidValue: names the column, and the key of its first null.
    """
    for field in schema:
        if not field.nullable and arrays[field.name].null_count:
            place = arrays[field.name].is_null().index(True).as_py()
            raise InvalidValue(f"column {field.name!r} is null for key {show_key(rows.key(place))}, and must not be")


def default_schema(value_format: str) -> str:
    """Return the columns of a DataFrame without an explicit schema, as a DDL string.

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
    """Return the values that could not be decoded; null elsewhere."""
    return pa.compute.if_else(pa.array(bad), values, pa.nulls(len(values), pa.binary()))
