"""Imports rows from a file of JSON lines, CSV, Parquet or Arrow."""

import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import field
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO

from shale.core.lazy_dataclass import dataclass
from shale.errors import InvalidRequestError
from shale_cli.commands.kv import file_kind, row_files
from shale_cli.commands.kv.import_journal import ImportJournal
from shale_cli.commands.kv.row_layout import MalformedRow, RowLayout
from shale_cli.commands.kv.row_writer import RowChange, RowCommit, RowWriter
from shale_cli.commands.kv.writing import WriterChoice, open_row_writer
from shale_cli.framework.output.progress import OnProgress
from shale_cli.framework.output.writer import Output
from shale_cli.framework.session import CliSession

_ARROW_ROWS = 1000
_ROWS_READ_FIRST = 1000
"""Rows that are read before the database is opened: a malformed file must not create one."""
_BATCH_BYTES = 4 << 20
_UNDER_WAY = 8
"""Batches that may wait for the WAL concurrently."""

_UNFLUSHED_BYTES = 256 << 20
"""Limit of memtables, lower than a writer's, because a command shares its machine."""


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of an import.  ``seq``: of the last batch; ``None`` if nothing was written.  ``found``: rows that an
    interrupted import had written.
    """

    rows: int
    expired: int
    seq: int | None
    found: int = 0


@dataclass(frozen=True, slots=True)
class ImportSource:
    """The rows of a file, and the row at which an import begins.

    ``total``: returns the number of rows, given how many were read; ``None`` if it is unknown.  ``is_resumed``: the
    rows after ``skip`` may be durable already.
    """

    rows: Iterator[RowChange]
    skip: int = 0
    is_resumed: bool = False
    journal: ImportJournal | None = None
    total: Callable[[int], int | None] = field(default=lambda _: None)


def source(
    output: Output, file: Path, format_: str, *, layout: RowLayout, skip: int, journal: ImportJournal | None = None
) -> ImportSource:
    """Return the rows after the first ``skip``; the file is opened now and read lazily.

    Raises:
        InvalidRequestError: the file cannot be read.
        MalformedRow: during iteration.
    """
    try:
        stream = sys.stdin.buffer if str(file) == "-" else file.open("rb")
        size = None if str(file) == "-" or not file.is_file() else file.stat().st_size
    except OSError as error:
        raise InvalidRequestError(f"{file}: {error.strerror}") from error
    file_kind.require(stream, file, format_)
    if format_ in ("parquet", "arrow"):
        from shale_cli.commands.kv import row_arrow

        rows, total = row_arrow.read(stream, file, format_, layout, _ARROW_ROWS)
        return ImportSource(islice(rows, skip, None), skip, journal=journal, total=lambda _: total)
    read = row_files.rows_of_csv if format_ == "csv" else row_files.rows_of_lines
    rows = read(output, stream, file, layout)
    return ImportSource(islice(rows, skip, None), skip, journal=journal, total=_estimate(stream, size))


def resumed(output: Output, file: Path, format_: str, layout: RowLayout, journal: ImportJournal) -> ImportSource:
    """Return the rows that an interrupted import of this file has not noted; all rows if none was interrupted."""
    notes = journal.load()
    skip = 0 if notes is None else int(notes["rows"])
    found = source(output, file, format_, layout=layout, skip=skip, journal=journal)
    return ImportSource(found.rows, skip, notes is not None, journal, found.total)


async def import_rows(
    session: CliSession, found: ImportSource, choice: WriterChoice, on_progress: OnProgress
) -> Imported:
    """Write all rows.  ``on_progress`` gets the number of durable rows, including the skipped ones.

    Raises:
        MalformedRow: the message tells how many rows are written: those of finished batches before it.
    """
    rows = chain(_take(found.rows, _ROWS_READ_FIRST), found.rows)
    async with open_row_writer(session, choice, max_unflushed_bytes=_UNFLUSHED_BYTES) as writer:
        if found.journal is not None:
            found.journal.store(found.skip, writer.epoch)  # so that this epoch is known to be dead after a kill
        run = _Import(writer, found, session.env.clock.now_ms(), on_progress)
        try:
            while chunk := _take(rows, writer.rows_at_once):
                await run.write(chunk)
        except MalformedRow as error:
            await run.finish()
            done = found.skip + run.read
            hint = f"imported {done} rows before it: correct it, and give --skip {done}"
            raise MalformedRow(f"{error}; {hint}") from error
        await run.finish()
    if found.journal is not None:
        found.journal.remove()
    return Imported(run.read - run.expired - run.found, run.expired, run.seq, run.found)


class _Import:
    """Writes batches of rows, of which some wait for the WAL."""

    def __init__(self, writer: RowWriter, source: ImportSource, now_ms: int, on_progress: OnProgress) -> None:
        self._writer = writer
        self._source = source
        self._now_ms = now_ms
        self._on_progress = on_progress
        self._pending: deque[tuple[RowCommit, int]] = deque()
        # What was durable and not noted yet when the import was killed.
        self._unsure = (_UNDER_WAY + 1) * writer.rows_at_once if source.is_resumed else 0
        self.read = self.expired = self.found = 0
        self.seq: int | None = None

    async def write(self, chunk: list[RowChange]) -> None:
        """Write the rows that have not expired and are not there yet."""
        alive = [row for row in chunk if row.expire_ms is None or row.expire_ms > self._now_ms]
        self.read, self.expired = self.read + len(chunk), self.expired + len(chunk) - len(alive)
        if self._unsure > 0:
            self._unsure -= len(chunk)
            missing = await self._missing(alive)
            self.found, alive = self.found + len(alive) - len(missing), missing
        if alive:
            commit = await self._writer.write(alive)
            self.seq = commit.seq
            self._pending.append((commit, self.read))
        while len(self._pending) > _UNDER_WAY:
            await self._await_durable()

    async def _missing(self, rows: list[RowChange]) -> list[RowChange]:
        """Return the rows to write again: of each key all rows or none, because a later row replaces an earlier one."""
        last = {row.key: row for row in rows}
        missing = {key for key, row in last.items() if not await self._writer.is_stored(row)}
        return [row for row in rows if row.key in missing]

    async def finish(self) -> None:
        """Wait until all rows are durable."""
        while self._pending:
            await self._await_durable()

    async def _await_durable(self) -> None:
        commit, read = self._pending.popleft()
        await commit.durable()
        done = self._source.skip + read
        if self._source.journal is not None:
            self._source.journal.store(done, self._writer.epoch)
        self._on_progress(done, self._source.total(self._source.skip + self.read))


def _take(rows: Iterator[RowChange], rows_max: int) -> list[RowChange]:
    """Return the rows of the next batch; none at the end."""
    taken: list[RowChange] = []
    size_bytes = 0
    while len(taken) < rows_max and size_bytes < _BATCH_BYTES and (row := next(rows, None)) is not None:
        taken.append(row)
        size_bytes += len(row.key) + len(row.value or b"")
    return taken


def _estimate(stream: BinaryIO, size: int | None) -> Callable[[int], int | None]:
    """Return the function that estimates the rows of a file from the part that was read."""

    def estimate(rows: int) -> int | None:
        if size is None or stream.closed:
            return rows if size is not None else None
        place = stream.tell()
        return round(rows * size / place) if place else None

    return estimate
