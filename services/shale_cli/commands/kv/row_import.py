"""Imports rows from a file of JSON lines or Parquet."""

import base64
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import chain, islice, starmap
from pathlib import Path
from typing import Any, BinaryIO

from shale.core.lazy_dataclass import dataclass
from shale.errors import InvalidRequestError
from shale_cli.commands.kv.row_writer import RowChange, RowCommit
from shale_cli.commands.kv.writing import WriterChoice, open_row_writer
from shale_cli.framework.output.progress import OnProgress
from shale_cli.framework.output.writer import Output
from shale_cli.framework.session import CliSession

_PARQUET_ROWS = 1000
_ROWS_READ_FIRST = 1000
"""Rows that are read before the database is opened: a malformed file must not create one."""
_BATCH_BYTES = 4 << 20
_UNDER_WAY = 8
"""Batches that may wait for the WAL concurrently."""

_UNFLUSHED_BYTES = 256 << 20
"""Limit of memtables, lower than a writer's, because a command shares its machine."""


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of an import.  ``seq``: of the last batch; ``None`` if nothing was written."""

    rows: int
    expired: int
    seq: int | None


def source(output: Output, file: Path, format_: str, *, skip: int) -> Iterator[RowChange]:
    """Return the rows after the first ``skip``; the file is opened now and read lazily.

    Raises:
        InvalidRequestError: the file cannot be read, or (during iteration) a row is malformed.
    """
    try:
        stream = sys.stdin.buffer if str(file) == "-" else file.open("rb")
    except OSError as error:
        raise InvalidRequestError(f"{file}: {error.strerror}") from error
    if format_ == "parquet":
        from shale_cli.commands.kv import row_parquet

        return islice(starmap(RowChange, row_parquet.read(stream, file, _PARQUET_ROWS)), skip, None)
    return islice(_of_lines(output, stream, file), skip, None)


async def import_rows(
    session: CliSession, rows: Iterator[RowChange], choice: WriterChoice, on_progress: OnProgress, *, skip: int
) -> Imported:
    """Write all rows.  ``on_progress`` gets the number of durable rows, including the ``skip`` skipped ones.

    Raises:
        InvalidRequestError: a row is malformed; the rows before it are written.
    """
    now_ms = session.env.clock.now_ms()
    pending: deque[tuple[RowCommit, int]] = deque()
    read = expired = 0
    seq: int | None = None
    rows = chain(_take(rows, _ROWS_READ_FIRST), rows)
    async with open_row_writer(session, choice, max_unflushed_bytes=_UNFLUSHED_BYTES) as writer:
        while chunk := _take(rows, writer.rows_at_once):
            alive = [row for row in chunk if row.expire_ms is None or row.expire_ms > now_ms]
            read, expired = read + len(chunk), expired + len(chunk) - len(alive)
            if alive:
                commit = await writer.write(alive)
                seq = commit.seq
                pending.append((commit, read))
            while len(pending) > _UNDER_WAY:
                await _await_durable(pending, on_progress, skip)
        while pending:
            await _await_durable(pending, on_progress, skip)
    return Imported(read - expired, expired, seq)


async def _await_durable(pending: "deque[tuple[RowCommit, int]]", on_progress: OnProgress, skip: int) -> None:
    commit, read = pending.popleft()
    await commit.durable()
    on_progress(skip + read)


def _take(rows: Iterator[RowChange], rows_max: int) -> list[RowChange]:
    """Return the rows of the next batch; none at the end."""
    taken: list[RowChange] = []
    size_bytes = 0
    while len(taken) < rows_max and size_bytes < _BATCH_BYTES and (row := next(rows, None)) is not None:
        taken.append(row)
        size_bytes += len(row.key) + len(row.value or b"")
    return taken


def _of_lines(output: Output, stream: BinaryIO, file: Path) -> Iterator[RowChange]:
    import orjson

    with stream:
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            try:
                data = orjson.loads(line)
                yield RowChange(_bytes(output, data, "key"), _bytes(output, data, "value"), _expire_ms(data))
            except (ValueError, InvalidRequestError) as error:
                raise InvalidRequestError(f"{file}, line {number}: {error}") from error


def _bytes(output: Output, data: Any, name: str) -> bytes:
    if not isinstance(data, Mapping):
        raise InvalidRequestError("not an object")
    encoded, text = data.get(f"{name}_b64"), data.get(name)
    if isinstance(encoded, str):
        return base64.b64decode(encoded, validate=True)
    if isinstance(text, str):
        return output.parse(text)
    raise InvalidRequestError(f"{name}_b64 or {name} is missing")


def _expire_ms(data: Mapping[str, Any]) -> int | None:
    expire_ms = data.get("expire_ms")
    if expire_ms is not None and type(expire_ms) is not int:
        raise InvalidRequestError("expire_ms is not a number of milliseconds since 1970")
    return expire_ms
