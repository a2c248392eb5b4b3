"""Rows into a file: lines of JSON, or Parquet."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from shale.admin.json_values import b64
from shale.errors import InvalidRequestError
from shale_cli.progress import OnProgress

if TYPE_CHECKING:
    from shale.engine.db_reader import DbReader
    from shale.types import Row

_ROWS_AT_ONCE = 1000
_TAIL_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Target:
    """Where rows go.  ``after``: the last key that is there already."""

    file: Path
    format: str
    after: bytes | None = None

    @property
    def is_stdout(self) -> bool:
        """Whether it is a pipe."""
        return str(self.file) == "-"

    @property
    def partial(self) -> Path:
        """What the file is called while it is not complete."""
        return self.file.with_name(f"{self.file.name}.partial")


def target(file: Path, format_: str, *, resume: bool) -> Target:
    """Where an export goes, and where it goes on.

    Raises:
        InvalidRequestError: it is there already, or cannot be resumed.
    """
    found = Target(file, format_)
    if found.is_stdout:
        if resume or format_ != "ndjson":
            raise InvalidRequestError("stdout takes NDJSON, and no --resume")
        return found
    if file.exists():
        raise InvalidRequestError(f"{file}: is there already")
    if not resume:
        if found.partial.exists():
            raise InvalidRequestError(f"{found.partial}: an export stopped here: give --resume, or remove it")
        return found
    if format_ != "ndjson":
        raise InvalidRequestError("only NDJSON can be resumed: Parquet has its index at the end")
    try:
        return Target(file, format_, _last_key(found.partial))
    except OSError as error:
        raise InvalidRequestError(f"{found.partial}: {error.strerror}") from error


async def export(reader: "DbReader", wanted: dict[str, Any], to: Target, on_progress: OnProgress) -> int:
    """Write all rows of a scan; returns how many.

    Raises:
        InvalidRequestError: pyarrow is not installed, or the file cannot be written.
    """
    if to.after is not None:
        # The successor of a key is the key with a zero byte behind it.
        wanted = {**wanted, "start": max(wanted["start"] or b"", to.after + b"\0")}
    if to.is_stdout:
        return await _lines(reader, wanted, sys.stdout.buffer, on_progress)
    try:
        if to.format == "parquet":
            from shale_cli import row_parquet

            rows = await row_parquet.write(reader.scan(**wanted), to.partial, on_progress)
        else:
            with to.partial.open("ab") as stream:
                rows = await _lines(reader, wanted, stream, on_progress)
        to.partial.rename(to.file)
    except OSError as error:
        raise InvalidRequestError(f"{to.file}: {error.strerror}") from error
    return rows


async def _lines(reader: "DbReader", wanted: dict[str, Any], stream: BinaryIO, on_progress: OnProgress) -> int:
    rows = 0
    async for batch in reader.scan(**wanted).batches(_ROWS_AT_ONCE):
        stream.write(b"".join(map(_line, batch)))
        rows += len(batch)
        on_progress(rows)
    stream.flush()
    return rows


def _line(row: "Row") -> bytes:
    import orjson

    data: dict[str, Any] = {"key_b64": b64(row.key), "value_b64": b64(row.value), "seq": row.seq}
    if row.create_ts is not None:
        data["create_ms"] = row.create_ts
    if row.expire_ts is not None:
        data["expire_ms"] = row.expire_ts
    return orjson.dumps(data, option=orjson.OPT_APPEND_NEWLINE)


def _last_key(file: Path) -> bytes | None:
    """The key of the last whole line; what was cut off behind it is removed.

    Raises:
        InvalidRequestError: the lines are not those of an export.
    """
    with file.open("r+b") as stream:
        end, length = stream.seek(0, 2), _TAIL_BYTES
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
        raise InvalidRequestError(f"{file}: its last line is not one of an export") from error
