"""Imports rows from a file of JSON lines or Parquet."""

import base64
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice, starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from shale.core.lazy_dataclass import dataclass
from shale.errors import InvalidRequestError
from shale_cli.framework.output.progress import OnProgress
from shale_cli.framework.output.writer import Output
from shale_cli.framework.session import CliSession

if TYPE_CHECKING:
    from shale.engine.db import Db
    from shale.engine.write.write_handle import WriteHandle

_BATCH_ROWS = 1000
_BATCH_BYTES = 4 << 20
_UNDER_WAY = 8
"""Batches that may wait for the WAL concurrently."""

_UNFLUSHED_BYTES = 256 << 20
"""Limit of memtables, lower than a writer's, because a command shares its machine."""


class Item(NamedTuple):
    """One row of a file.  ``expire_ms``: since 1970; ``None``: never."""

    key: bytes
    value: bytes
    expire_ms: int | None


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of an import.  ``seq``: of the last batch; ``None`` if nothing was written."""

    rows: int
    expired: int
    seq: int | None


def source(output: Output, file: Path, format_: str, *, skip: int) -> Iterator[Item]:
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

        return islice(starmap(Item, row_parquet.read(stream, file, _BATCH_ROWS)), skip, None)
    return islice(_of_lines(output, stream, file), skip, None)


async def import_rows(session: CliSession, rows: Iterator[Item], on_progress: OnProgress, *, skip: int) -> Imported:
    """Write all rows.  ``on_progress`` gets the number of durable rows, including the ``skip`` skipped ones.

    Raises:
        InvalidRequestError: a row is malformed; the rows before it are written.
    """
    from shale.engine.db import Db

    now_ms = session.env.clock.now_ms()
    pending: deque[tuple[WriteHandle, int]] = deque()
    read = expired = 0
    seq: int | None = None
    first = _take(rows)
    async with Db.open(**session.writer_args, max_unflushed_bytes=_UNFLUSHED_BYTES) as db:
        chunk = first
        while chunk:
            alive = [row for row in chunk if row.expire_ms is None or row.expire_ms > now_ms]
            read, expired = read + len(chunk), expired + len(chunk) - len(alive)
            if alive:
                handle = await _write(db, alive)
                seq = handle.seq
                pending.append((handle, read))
            while len(pending) > _UNDER_WAY:
                await _await_durable(pending, on_progress, skip)
            chunk = _take(rows)
        while pending:
            await _await_durable(pending, on_progress, skip)
    return Imported(read - expired, expired, seq)


async def _await_durable(pending: "deque[tuple[WriteHandle, int]]", on_progress: OnProgress, skip: int) -> None:
    handle, read = pending.popleft()
    await handle.durable()
    on_progress(skip + read)


async def _write(db: "Db", rows: list[Item]) -> "WriteHandle":
    batch = db.new_batch()
    for row in rows:
        batch.put(row.key, row.value, expire_at=row.expire_ms)
    return await db.write(batch)


def _take(rows: Iterator[Item]) -> list[Item]:
    """Return the rows of the next batch; none at the end."""
    taken: list[Item] = []
    size_bytes = 0
    while len(taken) < _BATCH_ROWS and size_bytes < _BATCH_BYTES and (row := next(rows, None)) is not None:
        taken.append(row)
        size_bytes += len(row.key) + len(row.value)
    return taken


def _of_lines(output: Output, stream: BinaryIO, file: Path) -> Iterator[Item]:
    import orjson

    with stream:
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            try:
                data = orjson.loads(line)
                yield Item(_bytes(output, data, "key"), _bytes(output, data, "value"), _expire_ms(data))
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
