"""The output contract (docs/operations.md 14): data on stdout, as a table for people or for machines as they like it.

JSON has ``schema_version``; byte strings are base64 under a name that ends in ``_b64``.  YAML says the same, CSV has a
line of dotted names and a line for each item.  Tables are never truncated.
"""

import base64
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TextIO

from shale.admin.json_values import b64
from shale.errors import InvalidRequestError
from shale_cli.fields import all_names, chosen, flat, require_known, value_of
from shale_cli.tables import is_colored, write_table

SCHEMA_VERSION = 1


class Format(StrEnum):
    """How results are written."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    YAML = "yaml"
    CSV = "csv"


class KeyFormat(StrEnum):
    """How keys and values are written on the command line and in tables."""

    UTF8 = "utf8"
    HEX = "hex"
    BASE64 = "base64"
    REPR = "repr"


class Color(StrEnum):
    """When there are colours."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Output:
    """Where and how a command writes its result.  ``columns``: only these fields, by their dotted names in JSON."""

    format: Format
    key_format: KeyFormat
    quiet: bool = False
    columns: tuple[str, ...] = ()
    headers: bool = True
    color: Color = Color.AUTO

    @property
    def is_table(self) -> bool:
        """Whether people read it, so that it may be brief."""
        return self.format is Format.TABLE

    @property
    def is_for_people(self) -> bool:
        """Whether keys and values are shown in the key format as well: in tables, and in CSV."""
        return self.format in (Format.TABLE, Format.CSV)

    def record(self, data: Mapping[str, Any], rows: Sequence[tuple[str, object]]) -> None:
        """One result: ``data`` for machines, or ``rows`` of names and values as a table.

        Raises:
            InvalidRequestError: ``--columns`` names what there is not.
        """
        if self.is_table:
            names = [name for name, _ in rows]
            require_known(self.columns, [dict.fromkeys(names)])
            self._table([], [(name, cell(value)) for name, value in rows if not self.columns or name in self.columns])
            return
        require_known(self.columns, [data])
        picked = chosen(data, self.columns)
        if self.format is Format.CSV:
            names = list(flat(picked))
            self.write_csv_header(names)
            self.write_csv_line(picked, names)
        else:
            self._write_whole(picked)

    def listing(self, name: str, items: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
        """Several results of one kind; ``columns`` are shown in a table, under the names they have in JSON.

        Raises:
            InvalidRequestError: ``--columns`` names what there is not.
        """
        require_known(self.columns, items, columns if self.is_table else ())
        match self.format:
            case Format.TABLE:
                shown = self.columns or tuple(columns)
                self._table(shown, [[cell(value_of(item, column)) for column in shown] for item in items])
            case Format.JSON | Format.YAML:
                self._write_whole({name: [chosen(item, self.columns) for item in items]})
            case Format.JSONL:
                for item in items:
                    write_line(chosen(item, self.columns))
            case Format.CSV:
                names = self.columns or tuple(all_names(items)) or tuple(columns)
                self.write_csv_header(names)
                for item in items:
                    self.write_csv_line(item, names)

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

    def write_csv_header(self, names: Sequence[str]) -> None:
        """The line of names, unless headers are not wanted."""
        if self.headers:
            _csv_line(names)

    def write_csv_line(self, item: Mapping[str, Any], names: Sequence[str]) -> None:
        """The values of ``names``; nothing where there is none, JSON where there are several."""
        values = flat(item)
        _csv_line([_csv_cell(values[name] if name in values else value_of(item, name)) for name in names])

    def _table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        write_table(columns, rows, headers=self.headers, colored=is_colored(self.color.value))

    def _write_whole(self, data: Mapping[str, Any]) -> None:
        versioned = {"schema_version": SCHEMA_VERSION, **data}
        if self.format is Format.YAML:
            write_yaml(versioned)
        else:
            write_json(versioned, pretty=self.format is Format.JSON)


def default_format(stream: TextIO) -> Format:
    """Tables for people, JSON for programs."""
    return Format.TABLE if stream.isatty() else Format.JSON


def write_line(value: Mapping[str, Any]) -> None:
    """One line of JSON, for results that are written while they are found."""
    write_json({"schema_version": SCHEMA_VERSION, **value}, pretty=False)


def write_text(line: str) -> None:
    """One line of text."""
    sys.stdout.write(f"{line}\n")


def write_bytes(data: bytes) -> None:
    """Bytes as they are."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def write_json(value: Mapping[str, Any], *, pretty: bool) -> None:
    """One JSON document, on one line unless it is ``pretty``."""
    import orjson

    text = orjson.dumps(value, option=orjson.OPT_INDENT_2 if pretty else 0).decode()
    sys.stdout.write(f"{text}\n")


def write_yaml(value: object) -> None:
    """One YAML document, or a part of a list."""
    import yaml

    yaml.safe_dump(value, sys.stdout, sort_keys=False, allow_unicode=True)


def cell(value: object) -> str:
    """A value in a table."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _csv_line(cells: Sequence[object]) -> None:
    import csv

    csv.writer(sys.stdout, lineterminator="\n").writerow(cells)


def _csv_cell(value: object) -> object:
    if isinstance(value, dict | list | tuple):
        import orjson

        return orjson.dumps(value).decode()
    if isinstance(value, bool):
        return "true" if value else "false"
    return value
