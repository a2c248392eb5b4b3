"""The output contract (docs/operations.md 14): data on stdout, as a table for people or as JSON for machines.

JSON has ``schema_version``; byte strings are base64 under a name that ends in ``_b64``.  Tables are never truncated.
"""

import base64
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TextIO

from shale.admin.json_values import b64

SCHEMA_VERSION = 1


class Format(StrEnum):
    """How results are written."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


class KeyFormat(StrEnum):
    """How keys and values are written on the command line and in tables."""

    UTF8 = "utf8"
    HEX = "hex"
    BASE64 = "base64"
    REPR = "repr"


@dataclass(frozen=True, slots=True)
class Output:
    """Where and how a command writes its result."""

    format: Format
    key_format: KeyFormat
    quiet: bool = False

    def record(self, data: Mapping[str, Any], rows: Sequence[tuple[str, object]]) -> None:
        """One result: ``data`` as JSON, or ``rows`` of names and values as a table."""
        if self.format is Format.TABLE:
            _write_table([], [(name, _cell(value)) for name, value in rows])
        else:
            _write_json({"schema_version": SCHEMA_VERSION, **data}, pretty=self.format is Format.JSON)

    def listing(self, name: str, items: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
        """Several results of one kind; ``columns`` are shown in a table, under the names they have in JSON."""
        match self.format:
            case Format.TABLE:
                _write_table(columns, [[_cell(item.get(column)) for column in columns] for item in items])
            case Format.JSON:
                _write_json({"schema_version": SCHEMA_VERSION, name: list(items)}, pretty=True)
            case Format.JSONL:
                for item in items:
                    _write_json({"schema_version": SCHEMA_VERSION, **item}, pretty=False)

    def note(self, line: str) -> None:
        """Something worth knowing that is no data: on stderr, unless it is quiet."""
        if not self.quiet:
            sys.stderr.write(f"{line}\n")

    def show(self, data: bytes) -> str:
        """Bytes as text, in the key format; UTF-8 falls back to escapes where bytes are no text."""
        match self.key_format:
            case KeyFormat.UTF8:
                text = data.decode("utf-8", "backslashreplace")
                return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
            case KeyFormat.HEX:
                return data.hex()
            case KeyFormat.BASE64:
                return b64(data)
            case KeyFormat.REPR:
                return repr(data)

    def parse(self, text: str) -> bytes:
        """Read what ``show`` writes.

        Raises:
            InvalidRequestError: not in this format.
        """
        import ast
        import binascii

        from shale.errors import InvalidRequestError

        try:
            match self.key_format:
                case KeyFormat.UTF8:
                    return text.encode("utf-8", "surrogateescape")
                case KeyFormat.HEX:
                    return bytes.fromhex(text)
                case KeyFormat.BASE64:
                    return base64.b64decode(text, validate=True)
                case KeyFormat.REPR:
                    value = ast.literal_eval(text)
        except (ValueError, SyntaxError, binascii.Error) as error:
            raise InvalidRequestError(f"{text!r} is not {self.key_format.value}") from error
        if not isinstance(value, bytes):
            raise InvalidRequestError(f"{text!r} is not a bytes literal such as b'key'")
        return value


def default_format(stream: TextIO) -> Format:
    """Tables for people, JSON for programs."""
    return Format.TABLE if stream.isatty() else Format.JSON


def write_line(value: Mapping[str, Any]) -> None:
    """One line of JSON, for results that are written while they are found."""
    _write_json({"schema_version": SCHEMA_VERSION, **value}, pretty=False)


def write_text(line: str) -> None:
    """One line of a table that is written while it is found."""
    sys.stdout.write(f"{line}\n")


def write_bytes(data: bytes) -> None:
    """Bytes as they are."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _write_json(value: Mapping[str, Any], *, pretty: bool) -> None:
    import orjson

    text = orjson.dumps(value, option=orjson.OPT_INDENT_2 if pretty else 0).decode()
    sys.stdout.write(f"{text}\n")


def _write_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    lines = [[column.upper() for column in columns], *map(list, rows)] if columns else [list(row) for row in rows]
    if not lines:
        return
    widths = [max(len(line[index]) for line in lines) for index in range(len(lines[0]))]
    for line in lines:
        text = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        sys.stdout.write(f"{text.rstrip()}\n")


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
