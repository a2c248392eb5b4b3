"""Reads rows from files of JSON lines and CSV, lazily."""

import base64
import io
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from shale.errors import InvalidRequestError
from shale_cli.commands.kv.row_layout import MalformedRow, RowLayout, encoder_of, put_of, to_bytes
from shale_cli.commands.kv.row_writer import RowChange
from shale_cli.framework.output.writer import Output

Convert = Callable[[Mapping[str, Any]], RowChange]

_MAYBE_TOO_LONG = re.compile(rb"\d{19}")
"""Digits of a number of 64 bits or more, which the fast parser makes a float."""
_INTEGERS = range(-(1 << 63), 1 << 64)


def rows_of_lines(output: Output, stream: BinaryIO, file: Path, layout: RowLayout) -> Iterator[RowChange]:
    """Yield the rows of JSON lines.

    Raises:
        MalformedRow: names the line.
    """
    import orjson

    convert = _converter(output, layout)
    with stream:
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            try:
                data = orjson.loads(line)
                if not isinstance(data, dict):
                    raise InvalidRequestError("not an object")
                if _MAYBE_TOO_LONG.search(line) and not layout.is_default:
                    _require_exact_integers(line)
                row = convert(data)
            except (ValueError, RecursionError) as error:
                raise MalformedRow(f"{file}, line {number}: {error}") from error
            yield row


def rows_of_csv(output: Output, stream: BinaryIO, file: Path, layout: RowLayout) -> Iterator[RowChange]:
    """Yield the rows of CSV in UTF-8, whose first line names the columns; raises like ``rows_of_lines``.

    Raises:
        InvalidRequestError: the first line does not name the columns, or names one twice.
    """
    convert = _converter(output, layout)
    with io.TextIOWrapper(stream, "utf-8-sig", newline="") as text:
        records = _records(text, file)
        _, names = next(records, (0, []))
        if layout.is_default and "key_b64" in names:
            layout.require_unique(names, str(file))
        else:
            layout.require(names, str(file))
        for number, fields in records:
            try:
                if len(fields) != len(names):
                    raise InvalidRequestError(f"{len(fields)} fields, the first line names {len(names)}")
                row = convert(dict(zip(names, fields, strict=True)))
            except ValueError as error:
                raise MalformedRow(f"{file}, line {number}: {error}") from error
            yield row


def _records(text: io.TextIOWrapper, file: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the records of CSV that are not empty, each with the number of its last line."""
    import csv

    csv.field_size_limit(2**31 - 1)
    reader = csv.reader(text, strict=True)
    try:
        for fields in reader:
            if fields:
                yield reader.line_num, fields
    except UnicodeDecodeError as error:
        raise MalformedRow(
            f"{file}, after line {reader.line_num}: byte 0x{error.object[error.start]:02x} is not UTF-8: "
            "convert the file, for example with iconv -f latin1 -t utf-8"
        ) from error
    except csv.Error as error:
        raise MalformedRow(f"{file}, line {reader.line_num}: {error}") from error


def _converter(output: Output, layout: RowLayout) -> Convert:
    """Return the function that makes a row of a record."""
    if layout.is_default:
        return lambda data: put_of(_bytes(output, data, "key"), _bytes(output, data, "value"), _expire_ms(data))
    key_name, value_name = layout.key_name, layout.value_name
    if layout.value_format is None:
        return lambda data: put_of(
            to_bytes(output, key_name, data.get(key_name)), to_bytes(output, value_name, data.get(value_name))
        )
    encode = encoder_of(layout.value_format)

    def convert(data: Mapping[str, Any]) -> RowChange:
        fields = dict(data)
        return put_of(to_bytes(output, key_name, fields.pop(key_name, None)), encode(fields))

    return convert


def _require_exact_integers(line: bytes) -> None:
    """Require that no integer of JSON has become a float, which would be another number.

    Raises:
        MalformedRow: names the integer.
    """
    import json

    def exact(digits: str) -> int:
        if (number := int(digits)) not in _INTEGERS:
            raise MalformedRow(f"the number {digits} has more than 64 bits: write it as text")
        return number

    json.loads(line, parse_int=exact)


def _bytes(output: Output, data: Mapping[str, Any], name: str) -> bytes:
    encoded, text = data.get(f"{name}_b64"), data.get(name)
    if isinstance(encoded, str):
        return base64.b64decode(encoded, validate=True)
    if isinstance(text, str):
        return to_bytes(output, name, text)
    if text is not None:
        raise InvalidRequestError(
            f"{name} is not text: give --key, and --value or --value-format, which take any value"
        )
    raise InvalidRequestError(f"{name}_b64 or {name} is missing")


def _expire_ms(data: Mapping[str, Any]) -> int | None:
    expire_ms = data.get("expire_ms")
    if isinstance(expire_ms, str):
        if not expire_ms:
            return None
        expire_ms = int(expire_ms) if expire_ms.isdecimal() else expire_ms
    if expire_ms is not None and type(expire_ms) is not int:
        raise InvalidRequestError(f"expire_ms is not a number of milliseconds since 1970: {expire_ms!r}")
    return expire_ms
