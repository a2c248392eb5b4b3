"""JSON objects, many at a time.

All values of a batch are parsed as one text.  If that fails, its halves are parsed, and so on down to the failing
values, so one parser decides about all of them, and a bad value costs its neighbours little.

Concatenated values could hide errors, so every value is read in two places: as a member, ``{"v":VALUE}``, and as an
element, ``{"v":[VALUE]}``.  After a complete value a member may be followed by ``,"name":…`` or by ``}``, an element by
``,…`` or by ``]``.  Only blanks are valid in both: ``}`` is an error in an array, ``]`` in an object, and the ``:``
after a name is one in an array.  Nor can a value extend into the next one: what it leaves open would be closed wrongly
by the wrapper's own brackets or by the line break, which no string may hold.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from shale.core.lazy_dataclass import dataclass
from shale.errors import InvalidRequestError
from shale_spark.codecs.codec import Decoded, InvalidValue, Mask, no_failures
from shale_spark.codecs.row_codecs import as_mapping, decode_rows, holds

_MEMBER = b'{"v":', b"}\n"
_ELEMENT = b'{"v":[', b"]}\n"
_NOT_JSON = b"NaN", b"Inf"
"""Numbers that the parser accepts and JSON does not.  Values with these letters are checked one by one."""
_REFUSED = (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError)


@dataclass(frozen=True, slots=True)
class JsonValueCodec:
    """One object per value; members are columns, unknown members are ignored, missing ones are null.

    A value is one JSON text (RFC 8259) and nothing else, in UTF-8.  ``null`` makes all columns null.  Invalid are: a
    member of the schema that occurs twice (with maps in the schema the last one counts), ``NaN`` and ``Infinity``, and
    numbers that the column's type cannot hold.
    """

    def check(self, schema: Any) -> None:
        """See ``ValueCodec``."""
        for field in schema:
            if holds(field.type, pa.types.is_binary):
                raise InvalidRequestError(f"column {field.name!r} is binary, which JSON has not: use string")

    def decode(self, values: Any, schema: Any) -> Decoded:
        """See ``ValueCodec``."""
        if any(holds(field.type, pa.types.is_map) for field in schema):
            return decode_rows(values, schema, lambda value: as_mapping(orjson.loads(value)))
        bad = no_failures(len(values))
        wrapped = pa.schema([("v", pa.struct(schema))])
        reasons: list[str] = []
        parts = list(_parse(values, 0, wrapped, bad, reasons))
        whole = pa.concat_arrays(parts) if parts else pa.array([], wrapped.field(0).type)
        return Decoded(_columns(whole, schema), bad, reasons[0] if reasons else "")

    def encode(self, columns: Any) -> Any:
        """See ``ValueCodec``."""
        return pa.array(list(_encoded(columns)), pa.binary())


def _columns(whole: Any, schema: Any) -> Any:
    """Return the members as columns; where the object itself is null, so are they."""
    return pa.RecordBatch.from_arrays(
        [pc.struct_field(whole, [place]).cast(field.type) for place, field in enumerate(schema)], schema=schema
    )


def _parse(values: Any, start: int, wrapped: Any, bad: Mask, reasons: list[str]) -> Iterator[Any]:
    """Parse values that begin at position ``start`` of the batch; yield arrays of structs, in order."""
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
    """Parse all values as one text; return one struct for each."""
    # The parser does not check UTF-8, and checks only the grammar of members outside the schema.
    values.cast(pa.string())
    elements = _joined(values, *_ELEMENT)
    _refuse_other_numbers(values, elements)
    _read(elements, pa.schema([("none", pa.null())]))
    read = _read(_joined(values, *_MEMBER), pa.schema([("v", _parsed_type(wrapped.field(0).type))]))
    if read.num_rows != len(values):
        raise pa.ArrowInvalid("more than one JSON value")
    column = read.column("v").combine_chunks()
    column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    # An escape in a string may stand for a character that UTF-8 cannot encode.
    column.validate(full=True)
    _refuse_infinite(column)
    return column.cast(wrapped.field(0).type)


def _read(text: Any, schema: Any) -> Any:
    return pa.json.read_json(
        pa.BufferReader(text),
        read_options=pa.json.ReadOptions(use_threads=False, block_size=text.size + 1),
        parse_options=pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )


def _joined(values: Any, begin: bytes, end: bytes) -> Any:
    joined = pc.binary_join_element_wise(begin, values, end, b"")
    offsets = np.frombuffer(joined.buffers()[1], np.int32)[joined.offset : joined.offset + len(joined) + 1]
    return joined.buffers()[2].slice(int(offsets[0]), int(offsets[-1] - offsets[0]))


def _refuse_other_numbers(values: Any, text: Any) -> None:
    whole = text.to_pybytes()
    for word in _NOT_JSON:
        if word not in whole:
            continue
        for value in values.filter(pc.match_substring(values, word)).to_pylist():
            try:
                orjson.loads(value)
            except orjson.JSONDecodeError as error:
                raise pa.ArrowInvalid(str(error)) from error


def _refuse_infinite(column: Any) -> None:
    """Refuse numbers with more digits than a double can hold, which the parser reads as infinite."""
    if pa.types.is_floating(column.type):
        if pc.any(pc.is_inf(column)).as_py():
            raise pa.ArrowInvalid("a number is too large")
    elif pa.types.is_struct(column.type):
        for child in column.flatten():
            _refuse_infinite(child)
    elif pa.types.is_list(column.type):
        _refuse_infinite(column.flatten())


def _parsed_type(wanted: Any) -> Any:
    """Return the type to parse: dates are text in JSON, and the parser expects numbers."""
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
            raise InvalidValue(f"row {place} is not JSON: {error}") from error
