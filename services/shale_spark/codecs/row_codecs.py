"""Formats whose values are decoded one by one: msgpack, Avro, and user code."""

import io
import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Protocol

import msgpack
import numpy as np
import pyarrow as pa

from shale.core.lazy_dataclass import dataclass
from shale.errors import InvalidRequestError
from shale.iter.user_code import USER_CODE_ERRORS, describe_error, is_value
from shale.plugins import resolve
from shale_spark.codecs.avro_bounds import reader_of, require_items_with_bytes
from shale_spark.codecs.codec import Decoded, InvalidValue, no_failures

GROUP = "shale.value_codecs"
"""Entry points that name codecs."""
_MSGPACK_TIMESTAMPS = 3  # as datetime
_REFUSED = (pa.ArrowException, ValueError, TypeError, OverflowError, ArithmeticError)
_DAMAGED = (EOFError, LookupError, RecursionError, struct.error, msgpack.UnpackException)


class RowCode(Protocol):
    """User code that converts one value to the names and values of its columns, and back."""

    def decode(self, value: bytes) -> Mapping[str, Any] | None:
        """Decode a value; ``None`` makes all columns null.  Any error makes it a bad value."""
        ...

    def encode(self, row: Mapping[str, Any]) -> bytes:
        """Encode a row as a value."""
        ...


@dataclass(frozen=True, slots=True)
class MsgpackValueCodec:
    """A map of names to columns, or an array of columns in the order of the schema."""

    def check(self, schema: Any) -> None:
        """See ``ValueCodec``.  Msgpack has all types."""

    def decode(self, values: Any, schema: Any) -> Decoded:
        """See ``ValueCodec``."""
        names = schema.names

        def read(value: bytes) -> Mapping[str, Any] | None:
            found = msgpack.unpackb(value, timestamp=_MSGPACK_TIMESTAMPS)
            return dict(zip(names, found, strict=True)) if isinstance(found, list) else as_mapping(found)

        return decode_rows(values, schema, read)

    def encode(self, columns: Any) -> Any:
        """See ``ValueCodec``."""
        return encode_rows(columns, lambda row: msgpack.packb(row, datetime=True, default=str))


@dataclass(frozen=True, slots=True)
class AvroValueCodec:
    """One datum without a header, of the record that ``schema_json`` describes."""

    schema_json: str

    def check(self, schema: Any) -> None:
        """See ``ValueCodec``."""
        parsed = _avro_schema(self.schema_json)
        known = {field["name"] for field in parsed.get("fields", ())}
        missing = [name for name in schema.names if name not in known]
        if missing:
            raise InvalidRequestError(f"the Avro schema has no field {missing[0]!r}")

    def decode(self, values: Any, schema: Any) -> Decoded:
        """See ``ValueCodec``."""
        written = _avro_schema(self.schema_json)
        read_datum = reader_of(written)

        def read(value: bytes) -> Mapping[str, Any] | None:
            file = io.BytesIO(value)
            found = read_datum(file, written)
            if file.tell() != len(value):
                raise ValueError(f"{len(value) - file.tell()} bytes after the record")
            return as_mapping(found)

        return decode_rows(values, schema, read)

    def encode(self, columns: Any) -> Any:
        """See ``ValueCodec``."""
        import fastavro

        written = _avro_schema(self.schema_json)

        def write(row: Mapping[str, Any]) -> bytes:
            file = io.BytesIO()
            fastavro.schemaless_writer(file, written, row)
            return file.getvalue()

        return encode_rows(columns, write)


@dataclass(frozen=True, slots=True)
class UserValueCodec:
    """A registered name, or ``module:attribute``, of a callable that returns a ``RowCode``."""

    name: str

    def check(self, schema: Any) -> None:  # noqa: ARG002 - the user's code checks the schema
        """See ``ValueCodec``."""
        _user_code(self.name)

    def decode(self, values: Any, schema: Any) -> Decoded:
        """See ``ValueCodec``."""
        code = _user_code(self.name)
        return decode_rows(values, schema, lambda value: as_mapping(code.decode(value)), refused=USER_CODE_ERRORS)

    def encode(self, columns: Any) -> Any:
        """See ``ValueCodec``."""
        return encode_rows(columns, _user_code(self.name).encode, refused=USER_CODE_ERRORS)


def as_mapping(found: Any) -> Mapping[str, Any] | None:
    """Return the names and values of columns.

    Raises:
        TypeError: the value is no object.
    """
    if found is not None and not isinstance(found, Mapping):
        raise TypeError(f"a {type(found).__name__}, where an object is expected")
    return found


def decode_rows(
    values: Any,
    schema: Any,
    read: Callable[[bytes], Mapping[str, Any] | None],
    *,
    refused: tuple[type[BaseException], ...] = (*_REFUSED, *_DAMAGED),
) -> Decoded:
    """Decode value by value; a value that ``read`` or a column's type refuses is bad."""
    bad = no_failures(len(values))
    reasons: dict[int, str] = {}
    rows: list[Mapping[str, Any] | None] = []
    for place, value in enumerate(values.to_pylist()):
        try:
            rows.append(read(value))
        except refused as error:
            bad[place] = True
            reasons[place] = describe_error(error) if refused is USER_CODE_ERRORS else _one_line(error)
            rows.append(None)
    arrays = []
    for field in schema:
        cells = [None if row is None else row.get(field.name) for row in rows]
        try:
            arrays.append(_column(cells, field.type))
        except _REFUSED:
            for place, reason in _bad_cells(cells, field):
                bad[place] = True
                reasons.setdefault(place, reason)
                cells[place] = None
            arrays.append(_column(cells, field.type))
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    if bad.any():
        mask = pa.array(bad)
        empty = [pa.nulls(len(values), field.type) for field in schema]
        cleaned = [replace_masked(mask, none, array) for none, array in zip(empty, arrays, strict=True)]
        batch = pa.RecordBatch.from_arrays(cleaned, schema=schema)
    return Decoded(batch, bad, reasons[int(np.argmax(bad))] if bad.any() else "")


def replace_masked(mask: Any, replacement: Any, array: Any) -> Any:
    """Return the array, with the replacement where the mask is true."""
    return pa.compute.if_else(mask, replacement, array)


def encode_rows(
    columns: Any, write: Callable[[Mapping[str, Any]], Any], *, refused: tuple[type[BaseException], ...] = _REFUSED
) -> Any:
    """Encode row by row.

    Raises:
        InvalidValue: ``write`` refused a row, or returned something other than bytes.
    """
    return pa.array(list(_written(columns, write, refused)), pa.binary())


def holds(type_: Any, is_a: Callable[[Any], bool]) -> bool:
    """Return whether a type is of this kind or contains one."""
    if is_a(type_):
        return True
    return any(holds(type_.field(place).type, is_a) for place in range(type_.num_fields))


def _written(
    columns: Any, write: Callable[[Mapping[str, Any]], Any], refused: tuple[type[BaseException], ...]
) -> Iterator[bytes]:
    for place, row in enumerate(columns.to_pylist(maps_as_pydicts="strict")):
        try:
            value = write(row)
        except refused as error:
            reason = describe_error(error) if refused is USER_CODE_ERRORS else _one_line(error)
            raise InvalidValue(f"row {place} cannot be written as a value: {reason}") from error
        if not is_value(value):
            raise InvalidValue(f"row {place} was encoded as {type(value).__name__}, not as bytes")
        yield bytes(value)


def _column(cells: Sequence[Any], type_: Any) -> Any:
    """Return cells as one array; text stands for dates, times and decimals where the format has only text."""
    if not pa.types.is_primitive(type_) or _is_written_as_text(type_) or any(type(cell) is float for cell in cells):
        cells = [_fitted(cell, type_) for cell in cells]
    return pa.array(cells, type_)


def _fitted(cell: Any, type_: Any) -> Any:
    """Return a cell as pyarrow takes it.

    Raises:
        ValueError: a number with a fraction, which pyarrow would truncate to an integer.
    """
    if isinstance(cell, float) and pa.types.is_integer(type_):
        if not cell.is_integer():
            raise ValueError(f"{cell} is no integer")
        return int(cell)
    if isinstance(cell, str) and _is_written_as_text(type_):
        return pa.scalar(cell).cast(type_).as_py()
    if isinstance(cell, Mapping) and pa.types.is_struct(type_):
        fields = [type_.field(place) for place in range(type_.num_fields)]
        return {field.name: _fitted(cell.get(field.name), field.type) for field in fields}
    if isinstance(cell, Mapping) and pa.types.is_map(type_):
        return [(_fitted(key, type_.key_type), _fitted(item, type_.item_type)) for key, item in cell.items()]
    if isinstance(cell, list | tuple) and pa.types.is_list(type_):
        return [_fitted(item, type_.value_type) for item in cell]
    return cell


def _is_written_as_text(type_: Any) -> bool:
    return bool(pa.types.is_temporal(type_) or pa.types.is_decimal(type_))


def _bad_cells(cells: Sequence[Any], field: Any) -> Iterator[tuple[int, str]]:
    for place, cell in enumerate(cells):
        try:
            _column([cell], field.type)
        except _REFUSED as error:
            yield place, f"column {field.name}: {_one_line(error)}"


def _one_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__


@cache
def _avro_schema(schema_json: str) -> Any:
    try:
        import fastavro
    except ImportError as error:
        raise InvalidRequestError("Avro values need the package fastavro: pip install 'shale[spark]'") from error
    try:
        parsed = json.loads(schema_json)
        if not isinstance(parsed, dict) or parsed.get("type") != "record":
            raise InvalidRequestError("must be of type record, with a field for each column")
        schema: Any = fastavro.parse_schema(parsed)
    except (ValueError, TypeError, fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
        raise InvalidRequestError(f"avro_schema: {_one_line(error)}") from error
    require_items_with_bytes(schema)
    return schema


@cache
def _user_code(name: str) -> RowCode:
    made = resolve(GROUP, name)
    try:
        return made()  # type: ignore[no-any-return]  # a missing method raises when it is called
    except USER_CODE_ERRORS as error:
        raise InvalidRequestError(f"value codec {name!r} failed to start: {describe_error(error)}") from error
