"""The output contract (docs/how-to/command-line.md): data on stdout, as a table or in a
machine-readable format.

JSON has ``schema_version``, and byte strings are base64 in fields whose names end in ``_b64``.  YAML has the same
fields; CSV has a header of dotted names and a line per item.  Tables are never truncated.
"""

import base64
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, TextIO

from shale.admin.json_values import b64
from shale.core.lazy_dataclass import dataclass
from shale.errors import InvalidRequestError
from shale.telemetry.printable import printable
from shale_cli.framework.output.fields import all_names, chosen, flat, require_known, value_of
from shale_cli.framework.output.tables import is_colored, write_table

SCHEMA_VERSION = 1


class Format(StrEnum):
    """The output format."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    YAML = "yaml"
    CSV = "csv"


class KeyEncoding(StrEnum):
    """The encoding of keys and values in arguments and tables."""

    UTF8 = "utf8"
    HEX = "hex"
    BASE64 = "base64"
    REPR = "repr"


class Color(StrEnum):
    """When to print colours."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Output:
    """The output of a command.  ``columns``: print only these fields, named by their dotted names in JSON."""

    format: Format
    key_format: KeyEncoding
    quiet: bool = False
    columns: tuple[str, ...] = ()
    headers: bool = True
    color: Color = Color.AUTO

    @property
    def is_table(self) -> bool:
        """Whether the output is a table, which may be shortened."""
        return self.format is Format.TABLE

    @property
    def is_human_readable(self) -> bool:
        """Whether the output also has keys and values in the key format: tables and CSV."""
        return self.format in (Format.TABLE, Format.CSV)

    def record(self, data: Mapping[str, Any], rows: Sequence[tuple[str, object]]) -> None:
        """Print one result: ``data``, or ``rows`` of names and values as a table.

        Raises:
            InvalidRequestError: ``--columns`` names an unknown field.
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
        """Print several results of one kind; ``columns`` are the fields of a table.

        Raises:
            InvalidRequestError: ``--columns`` names an unknown field.
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
        """Print a note to stderr, unless ``--quiet`` is given."""
        if not self.quiet:
            sys.stderr.write(f"{line}\n")

    def show(self, data: bytes) -> str:
        """Return bytes as text in the key format; bytes that are not UTF-8 are escaped."""
        match self.key_format:
            case KeyEncoding.UTF8:
                return printable(data.decode("utf-8", "backslashreplace"))
            case KeyEncoding.HEX:
                return data.hex()
            case KeyEncoding.BASE64:
                return b64(data)
            case KeyEncoding.REPR:
                return repr(data)

    def parse(self, text: str) -> bytes:
        """Parse the output of ``show``.

        Raises:
            InvalidRequestError: the text is not in the key format.
        """
        import ast
        import binascii

        try:
            match self.key_format:
                case KeyEncoding.UTF8:
                    return text.encode("utf-8", "surrogateescape")
                case KeyEncoding.HEX:
                    return bytes.fromhex(text)
                case KeyEncoding.BASE64:
                    return base64.b64decode(text, validate=True)
                case KeyEncoding.REPR:
                    value = ast.literal_eval(text)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError, binascii.Error) as error:
            raise InvalidRequestError(f"{text!r} is not {self.key_format.value}") from error
        if not isinstance(value, bytes):
            raise InvalidRequestError(f"{text!r} is not a bytes literal such as b'key'")
        return value

    def write_csv_header(self, names: Sequence[str]) -> None:
        """Write the header line, unless headers are disabled."""
        if self.headers:
            _csv_line(names)

    def write_csv_line(self, item: Mapping[str, Any], names: Sequence[str]) -> None:
        """Write the values of ``names``; missing ones are empty, lists are JSON."""
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
    """Return table for a terminal, otherwise JSON."""
    return Format.TABLE if stream.isatty() else Format.JSON


def write_line(value: Mapping[str, Any]) -> None:
    """Write one line of JSON, for streamed results."""
    write_json({"schema_version": SCHEMA_VERSION, **value}, pretty=False)


def write_text(line: str) -> None:
    """Write one line of text."""
    sys.stdout.write(f"{line}\n")


def write_bytes(data: bytes) -> None:
    """Write raw bytes."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def write_json(value: Mapping[str, Any], *, pretty: bool) -> None:
    """Write one JSON document, on one line unless ``pretty`` is set."""
    import orjson

    text = orjson.dumps(value, option=orjson.OPT_INDENT_2 if pretty else 0).decode()
    sys.stdout.write(f"{text}\n")


def write_yaml(value: object) -> None:
    """Write one YAML document, or items of a list."""
    import yaml

    yaml.safe_dump(value, sys.stdout, sort_keys=False, allow_unicode=True)


def cell(value: object) -> str:
    """Return a value as a table cell."""
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
