"""Streamed results: more than fits into memory, or without an end."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from shale_cli.framework.output.fields import chosen, require_known, value_of
from shale_cli.framework.output.writer import Format, Output, cell, write_line, write_text, write_yaml


class Stream:
    """Writes one item at a time: a line of JSON in both JSON formats, tab-separated text as a table.

    Args:
        output: the output of the command.
        columns: the fields of a table and of CSV.
    """

    def __init__(self, output: Output, columns: Sequence[str]) -> None:
        self._output = output
        self._columns = output.columns or tuple(columns)
        self._has_begun = False

    def write(self, item: Mapping[str, Any]) -> None:
        """Write one item.

        Raises:
            InvalidRequestError: ``--columns`` names a field that the first item lacks.
        """
        self.begin(item)
        match self._output.format:
            case Format.TABLE:
                write_text("\t".join(cell(value_of(item, column)) for column in self._columns))
            case Format.CSV:
                self._output.write_csv_line(item, self._columns)
            case Format.YAML:
                write_yaml([chosen(item, self._output.columns)])
            case _:
                write_line(chosen(item, self._output.columns))

    def begin(self, first: Mapping[str, Any] | None = None) -> None:
        """Write the header once, also for a result without items."""
        if self._has_begun:
            return
        if first is not None:
            require_known(self._output.columns, [first], self._columns if not self._output.columns else ())
        self._has_begun = True
        if self._output.format is Format.TABLE and self._output.headers:
            write_text("\t".join(column.upper() for column in self._columns))
        elif self._output.format is Format.CSV:
            self._output.write_csv_header(self._columns)

    def flush(self) -> None:
        """Flush stdout, so that the reader of a pipe gets the items."""
        sys.stdout.flush()
