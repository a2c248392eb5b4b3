"""Exports rows to a file of JSON lines or Parquet."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from shale.admin.json_values import b64
from shale.core.lazy_dataclass import dataclass
from shale.errors import InvalidRequestError
from shale_cli.framework.output.progress import OnProgress

if TYPE_CHECKING:
    from shale.engine.db_reader import DbReader
    from shale.types import Row

_ROWS_AT_ONCE = 1000
TAIL_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Target:
    """The target of an export.  ``after``: the last key of an interrupted export."""

    file: Path
    format: str
    after: bytes | None = None

    @property
    def is_stdout(self) -> bool:
        """Whether the target is stdout."""
        return str(self.file) == "-"

    @property
    def partial(self) -> Path:
        """The path of the incomplete file."""
        return self.file.with_name(f"{self.file.name}.partial")


def target(file: Path, format_: str, *, resume: bool) -> Target:
    """Return the target of an export, with the position at which to resume.

    Raises:
        InvalidRequestError: the file exists, or the export cannot be resumed.
    """
    found = Target(file, format_)
    if found.is_stdout:
        if resume or format_ != "ndjson":
            raise InvalidRequestError("stdout supports NDJSON only, and no --resume")
        return found
    if file.exists():
        raise InvalidRequestError(f"{file}: the file already exists")
    if not resume:
        if found.partial.exists():
            raise InvalidRequestError(
                f"{found.partial}: the file of an interrupted export exists: give --resume, or remove it"
            )
        return found
    if format_ != "ndjson":
        raise InvalidRequestError("--resume supports NDJSON only: Parquet has its index at the end")
    try:
        return Target(file, format_, _last_key(found.partial))
    except OSError as error:
        raise InvalidRequestError(f"{found.partial}: {error.strerror}") from error


async def export(reader: "DbReader", wanted: dict[str, Any], to: Target, on_progress: OnProgress) -> int:
    """Write all rows of a scan and return their number.

    Raises:
        InvalidRequestError: pyarrow is not installed, or the file cannot be written.
    """
    if to.after is not None:
        # The successor of a key is the key with a zero byte appended.
        wanted = {**wanted, "start": max(wanted["start"] or b"", to.after + b"\0")}
    if to.is_stdout:
        return await _lines(reader, wanted, sys.stdout.buffer, on_progress)
    try:
        if to.format == "parquet":
            from shale_cli.commands.kv import row_parquet

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
