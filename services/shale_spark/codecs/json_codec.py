"""JSON objects, many at a time.

All values of a batch are parsed as one text.  If that fails, its halves are parsed, and so on down to the values at
fault, so one parser decides about all of them and good neighbours of a bad value cost little.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from shale.errors import InvalidRequestError
from shale_spark.codecs.codec import Decoded, Mask, ValueRefused, no_bad
from shale_spark.codecs.row_codec import as_mapping, decode_rows, holds

_BEGIN, _END = b'{"v":', b"}\n"
_REFUSED = (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError)


@dataclass(frozen=True, slots=True)
class JsonCodec:
    """One object per value; its members are the columns, members beside them are ignored, missing ones are null."""

    def check(self, schema: Any) -> None:
        """See ``ValueCodec``."""
        for field in schema:
            if holds(field.type, pa.types.is_binary):
                raise InvalidRequestError(f"column {field.name!r} is binary, which JSON has not: use string")

    def decode(self, values: Any, schema: Any) -> Decoded:
        """See ``ValueCodec``."""
        if any(holds(field.type, pa.types.is_map) for field in schema):
            return decode_rows(values, schema, lambda value: as_mapping(orjson.loads(value)))
        bad = no_bad(len(values))
        wrapped = pa.schema([("v", pa.struct(schema))])
        reasons: list[str] = []
        parts = list(_parse(values, 0, wrapped, bad, reasons))
        whole = pa.concat_arrays(parts) if parts else pa.array([], wrapped.field(0).type)
        return Decoded(_columns(whole, schema), bad, reasons[0] if reasons else "")

    def encode(self, columns: Any) -> Any:
        """See ``ValueCodec``."""
        return pa.array(list(_encoded(columns)), pa.binary())


def _columns(whole: Any, schema: Any) -> Any:
    """The members as columns; where the object itself is null, so are they."""
    return pa.RecordBatch.from_arrays(
        [pc.struct_field(whole, [place]).cast(field.type) for place, field in enumerate(schema)], schema=schema
    )


def _parse(values: Any, start: int, wrapped: Any, bad: Mask, reasons: list[str]) -> Iterator[Any]:
    """Parse values that begin at place ``start`` of the batch; gives arrays of structs, in order."""
    if not len(values):
        return
    try:
        yield _parse_text(values, wrapped)
    except _REFUSED as error:
        if len(values) > 1:
            middle = len(values) // 2
            yield from _parse(values[:middle], start, wrapped, bad, reasons)
            yield from _parse(values[middle:], start + middle, wrapped, bad, reasons)
            return
        bad[start] = True
        reasons.append(_reason(error))
        yield pa.nulls(1, wrapped.field(0).type)


def _parse_text(values: Any, wrapped: Any) -> Any:
    """All values as one text, each of them inside an object of its own.

    So a value cannot reach into its neighbour: the wrapper behind it would not be JSON.  It can at most be several
    values (``1}{"v":2``), and then the count is wrong.
    """
    text = _joined(values)
    read = pa.json.read_json(
        pa.BufferReader(text),
        read_options=pa.json.ReadOptions(use_threads=False, block_size=text.size + 1),
        parse_options=pa.json.ParseOptions(
            explicit_schema=pa.schema([("v", _parsed_type(wrapped.field(0).type))]),
            unexpected_field_behavior="ignore",
        ),
    )
    if read.num_rows != len(values):
        raise pa.ArrowInvalid("more than one JSON value")
    column = read.column("v").combine_chunks()
    column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    # The parser does not look whether strings are UTF-8, and Spark does not either.
    column.validate(full=True)
    return column.cast(wrapped.field(0).type)


def _joined(values: Any) -> Any:
    joined = pc.binary_join_element_wise(_BEGIN, values, _END, b"")
    offsets = np.frombuffer(joined.buffers()[1], np.int32)[joined.offset : joined.offset + len(joined) + 1]
    return joined.buffers()[2].slice(int(offsets[0]), int(offsets[-1] - offsets[0]))


def _parsed_type(wanted: Any) -> Any:
    """The type to parse: dates stand in JSON as text, and the parser expects numbers."""
    if pa.types.is_date(wanted):
        return pa.string()
    if pa.types.is_struct(wanted):
        return pa.struct([field.with_type(_parsed_type(field.type)).with_nullable(True) for field in wanted])
    if pa.types.is_list(wanted):
        return pa.list_(wanted.value_field.with_type(_parsed_type(wanted.value_type)))
    return wanted


def _reason(error: BaseException) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "a string is not UTF-8"
    lines = str(error).splitlines()
    return lines[0].removeprefix("JSON parse error: ").replace("Column(/v", "Column(").replace(" in row 0", "")


def _encoded(columns: Any) -> Iterator[bytes]:
    for place, row in enumerate(columns.to_pylist(maps_as_pydicts="strict")):
        try:
            yield orjson.dumps(row, default=str, option=orjson.OPT_UTC_Z)
        except orjson.JSONEncodeError as error:
            raise ValueRefused(f"row {place} is not JSON: {error}") from error
