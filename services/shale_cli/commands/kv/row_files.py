"""Reads rows from files of JSON lines and CSV, lazily."""

import base64
import io
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from shale.errors import InvalidRequestError
from shale_cli.commands.kv.row_layout import RowLayout, encoder_of, to_bytes
from shale_cli.commands.kv.row_writer import RowChange
from shale_cli.framework.output.writer import Output

Convert = Callable[[Mapping[str, Any]], RowChange]


def rows_of_lines(output: Output, stream: BinaryIO, file: Path, layout: RowLayout) -> Iterator[RowChange]:
    """Yield the rows of JSON lines.

    Raises:
        InvalidRequestError: a line is malformed; names it.
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
                yield convert(data)
            except (ValueError, InvalidRequestError) as error:
                raise InvalidRequestError(f"{file}, line {number}: {error}") from error


def rows_of_csv(output: Output, stream: BinaryIO, file: Path, layout: RowLayout) -> Iterator[RowChange]:
    """Yield the rows of CSV in UTF-8, whose first line names the columns; raises like ``rows_of_lines``."""
    import csv

    convert = _converter(output, layout)
    csv.field_size_limit(2**31 - 1)
    with io.TextIOWrapper(stream, "utf-8-sig", newline="") as text:
        reader = csv.reader(text, strict=True)
        names: list[str] = []
        try:
            names = next(reader, [])
            if not layout.is_default or "key_b64" not in names:
                layout.require(names, str(file))
            for fields in reader:
                if not fields:
                    continue
                if len(fields) != len(names):
                    raise InvalidRequestError(f"{len(fields)} fields, the first line names {len(names)}")
                yield convert(dict(zip(names, fields, strict=True)))
        except (ValueError, csv.Error, InvalidRequestError) as error:
            if not names or str(file) in str(error):
                raise InvalidRequestError(str(error)) from error
            raise InvalidRequestError(f"{file}, line {reader.line_num}: {error}") from error


def _converter(output: Output, layout: RowLayout) -> Convert:
    """Return the function that makes a row of a record."""
    if layout.is_default:
        return lambda data: RowChange(_bytes(output, data, "key"), _bytes(output, data, "value"), _expire_ms(data))
    key_name, value_name = layout.key_name, layout.value_name
    if layout.value_format is None:
        return lambda data: RowChange(
            to_bytes(output, key_name, data.get(key_name)), to_bytes(output, value_name, data.get(value_name))
        )
    encode = encoder_of(layout.value_format)

    def convert(data: Mapping[str, Any]) -> RowChange:
        fields = dict(data)
        return RowChange(to_bytes(output, key_name, fields.pop(key_name, None)), encode(fields))

    return convert


def _bytes(output: Output, data: Mapping[str, Any], name: str) -> bytes:
    encoded, text = data.get(f"{name}_b64"), data.get(name)
    if isinstance(encoded, str):
        return base64.b64decode(encoded, validate=True)
    if isinstance(text, str):
        return to_bytes(output, name, text)
    raise InvalidRequestError(f"{name}_b64 or {name} is missing")


def _expire_ms(data: Mapping[str, Any]) -> int | None:
    expire_ms = data.get("expire_ms")
    if isinstance(expire_ms, str):
        if not expire_ms:
            return None
        expire_ms = int(expire_ms) if expire_ms.isdecimal() else expire_ms
    if expire_ms is not None and type(expire_ms) is not int:
        raise InvalidRequestError("expire_ms is not a number of milliseconds since 1970")
    return expire_ms
