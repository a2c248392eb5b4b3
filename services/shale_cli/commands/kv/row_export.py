"""Exports rows to a file of JSON lines, CSV, Parquet or Arrow."""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from shale.admin.json_values import b64
from shale.core.lazy_dataclass import dataclass
from shale.errors import InvalidRequestError
from shale_cli.commands.kv.record_columns import column_names, require_known
from shale_cli.commands.kv.row_layout import RowLayout, decoder_of, to_json, to_text
from shale_cli.framework.output.progress import OnProgress
from shale_cli.framework.output.writer import Output

if TYPE_CHECKING:
    from shale.engine.db_reader import DbReader
    from shale.engine.scan.scan import Scan
    from shale.types import Row

_ROWS_AT_ONCE = 1000
TAIL_BYTES = 1 << 20
_ARROW = frozenset({"parquet", "arrow"})
_SEEKING = ("parquet",)
"""Formats that need a file."""


@dataclass(frozen=True, slots=True)
class Target:
    """The target of an export.  ``after``: the last key of an interrupted export."""

    file: Path
    format: str
    after: bytes | None = None
    layout: RowLayout = RowLayout()

    @property
    def is_stdout(self) -> bool:
        """Whether the target is stdout."""
        return str(self.file) == "-"

    @property
    def is_resumable(self) -> bool:
        """Whether an interrupted export can go on."""
        return self.format == "ndjson" and self.layout.is_default

    @property
    def partial(self) -> Path:
        """The path of the incomplete file."""
        return self.file.with_name(f"{self.file.name}.partial")


def target(file: Path, format_: str, *, resume: bool, layout: RowLayout | None = None) -> Target:
    """Return the target of an export, with the position at which to resume.

    Raises:
        InvalidRequestError: the file exists, the export cannot be resumed, or pyarrow is not installed.
    """
    if format_ in _ARROW:
        import_module("shale_cli.commands.kv.row_arrow")  # before a file is created that a later export would refuse
    chosen = layout if layout is not None else RowLayout()
    found = Target(file, format_, layout=chosen)
    if found.is_stdout:
        if resume or format_ in _SEEKING:
            raise InvalidRequestError("stdout supports NDJSON, CSV and Arrow, and no --resume")
        return found
    if file.exists():
        raise InvalidRequestError(f"{file}: the file already exists")
    if not resume:
        if found.partial.exists():
            advice = "give --resume, or remove it" if found.is_resumable else "remove it"
            raise InvalidRequestError(f"{found.partial}: the file of an interrupted export exists: {advice}")
        return found
    if not found.is_resumable:
        raise InvalidRequestError("--resume supports NDJSON with key_b64 and value_b64 only")
    try:
        return Target(file, format_, _last_key(found.partial))
    except OSError as error:
        raise InvalidRequestError(f"{found.partial}: {error.strerror}") from error


async def export(
    reader: "DbReader", wanted: dict[str, Any], to: Target, output: Output, on_progress: OnProgress
) -> int:
    """Write all rows of a scan and return their number.

    Raises:
        InvalidRequestError: pyarrow is not installed, a value has another format, or the file cannot be written.
    """
    if to.after is not None:
        # The successor of a key is the key with a zero byte appended.
        wanted = {**wanted, "start": max(wanted["start"] or b"", to.after + b"\0")}
    if to.is_stdout:
        return await _write(reader.scan(**wanted), to, sys.stdout.buffer, output, on_progress)
    try:
        with to.partial.open("ab") as stream:
            rows = await _write(reader.scan(**wanted), to, stream, output, on_progress)
        to.partial.rename(to.file)
    except OSError as error:
        raise InvalidRequestError(f"{to.file}: {error.strerror}") from error
    return rows


class RecordSink(Protocol):
    """What takes the records of rows."""

    def write(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Write records."""
        ...

    def close(self) -> None:
        """Complete the file."""
        ...


async def _write(scan: "Scan", to: Target, stream: BinaryIO, output: Output, on_progress: OnProgress) -> int:
    is_arrow = to.format in _ARROW
    if is_arrow and to.layout.value_format is None:
        from shale_cli.commands.kv import row_arrow

        return await row_arrow.write(scan, stream, to.format, to.layout, on_progress)
    sink: RecordSink
    if is_arrow:
        from shale_cli.commands.kv.row_arrow import RecordTable

        sink = RecordTable(stream, to.format)
    else:
        sink = _CsvRecords(stream) if to.format == "csv" else _JsonRecords(stream)
    record, rows = _recorder(to, output), 0
    async for batch in scan.batches(_ROWS_AT_ONCE):
        sink.write(list(map(record, batch)))
        rows += len(batch)
        on_progress(rows)
    sink.close()
    stream.flush()
    return rows


class _JsonRecords:
    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def write(self, records: Sequence[Mapping[str, Any]]) -> None:
        self._stream.write(b"".join(to_json(record) + b"\n" for record in records))

    def close(self) -> None:
        """Do nothing: every line is complete."""


class _Lines(list[str]):
    """What ``csv.writer`` writes, one line at a time, with the end of line of the export."""

    def write(self, line: str) -> None:
        self.append(line.removesuffix("\r\n") + "\n")


class _CsvRecords:
    """The first records decide the columns."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._names: list[str] = []

    def write(self, records: Sequence[Mapping[str, Any]]) -> None:
        import csv

        lines = _Lines()
        # With this terminator, a field with either of its characters is quoted.
        writer = csv.writer(lines, lineterminator="\r\n")
        if not self._names:
            self._names = column_names(records, within_objects=False)
            writer.writerow(self._names)
        require_known(records, self._names)
        for record in records:
            writer.writerow([_csv_cell(record.get(name)) for name in self._names])
        self._stream.write("".join(lines).encode())

    def close(self) -> None:
        """Do nothing: every line is complete."""


def _recorder(to: Target, output: Output) -> Callable[["Row"], Mapping[str, Any]]:
    """Return the function that makes a record of a row."""
    layout = to.layout
    if layout.value_format is not None:
        decode = decoder_of(layout.value_format, keeps_types=to.format in ("parquet", "arrow"))
        value_format = layout.value_format.value

        def decoded(row: "Row") -> Mapping[str, Any]:
            key = to_text(output, "the key", row.key)
            try:
                fields = decode(row.value)
            except (ValueError, InvalidRequestError) as error:
                raise InvalidRequestError(f"the value of key {key} is not {value_format}: {error}") from error
            if layout.key_name in fields:
                raise InvalidRequestError(
                    f"the value of key {key} has a field {layout.key_name!r}, too: give --key with another name"
                )
            return {layout.key_name: key, **fields}

        return decoded
    if to.format == "ndjson" and layout.is_default:
        return _record
    has_expiry = layout.is_default

    def as_text(row: "Row") -> Mapping[str, Any]:
        record = {
            layout.key_name: to_text(output, "the key", row.key),
            layout.value_name: to_text(output, "the value of a key,", row.value),
        }
        return {**record, "expire_ms": row.expire_ts} if has_expiry else record

    return as_text


def _record(row: "Row") -> Mapping[str, Any]:
    data: dict[str, Any] = {"key_b64": b64(row.key), "value_b64": b64(row.value), "seq": row.seq}
    if row.create_ts is not None:
        data["create_ms"] = row.create_ts
    if row.expire_ts is not None:
        data["expire_ms"] = row.expire_ts
    return data


def _csv_cell(value: object) -> object:
    if isinstance(value, dict | list | bool):
        return to_json(value).decode()
    return b64(value) if isinstance(value, bytes) else value


def _last_key(file: Path) -> bytes | None:
    """Return the key of the last complete line; truncate an incomplete line after it.

    Raises:
        InvalidRequestError: the line is not that of an export.
    """
    with file.open("r+b") as stream:
        end, length = stream.seek(0, 2), TAIL_BYTES
        while True:
            start = stream.seek(max(0, end - length))
            tail = stream.read(end - start)
            whole = tail.rfind(b"\n") + 1
            begin = tail.rfind(b"\n", 0, max(0, whole - 1)) + 1
            if begin or start == 0:
                break
            length *= 2
        stream.truncate(start + whole)
    return _key_of(tail[begin:whole], file) if whole else None


def _key_of(line: bytes, file: Path) -> bytes:
    import base64

    import orjson

    try:
        return base64.b64decode(orjson.loads(line)["key_b64"], validate=True)
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidRequestError(f"{file}: the last line is not that of an export") from error
