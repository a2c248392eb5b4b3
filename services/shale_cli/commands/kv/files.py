"""``shale kv export`` and ``import``: rows to and from files."""

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shale_cli.commands.kv.reading import CheckpointId, Pin, Prefix, Start, Stop, bounds, open_reader
from shale_cli.commands.kv.row_layout import KeyColumn, RowLayout, ValueColumn, ValueFormatOption
from shale_cli.commands.kv.writing import Endpoint, TakeOver, TokenFile, WriterChoice
from shale_cli.framework.client_tls import CaFile, ClientCertFile, ClientKeyFile, tls_files
from shale_cli.framework.output.wal_gaps import AllowWalGap
from shale_cli.framework.session import CliSession, run

if TYPE_CHECKING:
    from shale_cli.commands.kv.row_import import ImportSource


class FileFormat(StrEnum):
    """The format of a file.  ``ARROW``: an IPC stream, or for an import also an IPC file."""

    NDJSON = "ndjson"
    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"


_SUFFIXES = {
    ".csv": FileFormat.CSV,
    ".parquet": FileFormat.PARQUET,
    **dict.fromkeys((".arrow", ".arrows", ".feather"), FileFormat.ARROW),
}


Format = Annotated[FileFormat | None, typer.Option("--format", help="By default from the file name.")]


def register(app: typer.Typer) -> None:
    """Add both commands to the noun."""
    app.command(
        "export",
        epilog="Examples:  shale kv export rows.ndjson -u s3://bucket/db  |  "
        "shale kv export - --prefix user/ -u s3://bucket/db | gzip > users.ndjson.gz  |  "
        "shale kv export rows.parquet --pin -u s3://bucket/db  |  "
        "shale kv export users.csv --key id --value-format json -u s3://bucket/db",
    )(export)
    app.command(
        "import",
        epilog="Examples:  shale kv import rows.ndjson -u s3://bucket/db  |  "
        "gunzip -c users.ndjson.gz | shale kv import - -u s3://bucket/db  |  "
        "shale kv import users.parquet --key id --value-format msgpack --resume -u s3://bucket/db",
    )(import_)


def export(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="The file to write; -: stdout.")],
    *,
    format_: Format = None,
    key: KeyColumn = None,
    value: ValueColumn = None,
    value_format: ValueFormatOption = None,
    prefix: Prefix = None,
    start: Start = None,
    stop: Stop = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted export into this file.")] = False,
    checkpoint: CheckpointId = None,
    pin: Pin = False,
    allow_wal_gap: AllowWalGap = False,
) -> None:
    """Write rows to a file in key order, in bounded memory: NDJSON, CSV, Parquet or Arrow (need shale[arrow]).

    An incomplete file is named FILE.partial.  JSON lines have key_b64, value_b64, seq and times, like `kv scan`; with
    --key, --value or --value-format, and in CSV, keys and values are text in the key format.
    """

    async def work(session: CliSession) -> None:
        from shale_cli.commands.kv import row_export
        from shale_cli.framework.output.progress import progress

        wanted = bounds(session.output, prefix, start, stop)
        layout = RowLayout(key, value, value_format)
        target = row_export.target(file, format_of(file, format_).value, resume=resume, layout=layout)
        with progress(session.output, session.env.clock, "exported", "rows") as on_progress:
            async with open_reader(session, pin=pin, checkpoint=checkpoint, allow_wal_gap=allow_wal_gap) as reader:
                rows = await row_export.export(reader, wanted, target, session.output, on_progress)
        if target.is_stdout:
            session.output.note(f"exported {rows:,} rows")
        else:
            session.output.record({"file": str(file), "rows": rows}, [("file", file), ("rows", rows)])

    run(context, work)


def import_(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="The file to read; -: stdin.")],
    *,
    format_: Format = None,
    key: KeyColumn = None,
    value: ValueColumn = None,
    value_format: ValueFormatOption = None,
    skip: Annotated[
        int | None, typer.Option(min=0, help="Rows to skip: the number that an interrupted import printed.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an import that was killed.")] = False,
    endpoint: Endpoint = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    client_cert_file: ClientCertFile = None,
    client_key_file: ClientKeyFile = None,
    take_over: TakeOver = False,
) -> None:
    """Write the rows of a file in batches; expired rows are skipped.

    JSON lines and CSV need key_b64 and value_b64, or key and value in the key format, and may have expire_ms.  Parquet
    and Arrow streams need the columns key and value, and may have expire_ts.  --key, --value and --value-format take
    any other columns.  While a writer runs, rows are written through its HTTP API; --take-over fences that writer
    instead.
    """

    async def work(session: CliSession) -> None:
        from shale_cli.commands.kv import row_import
        from shale_cli.framework.output.progress import progress

        layout = RowLayout(key, value, value_format)
        tls = tls_files(ca_file, client_cert_file, client_key_file)
        choice = WriterChoice(endpoint, token_file, take_over, tls=tls)
        source, choice = _source(
            session,
            file,
            format_=format_of(file, format_).value,
            layout=layout,
            choice=choice,
            skip=skip,
            resume=resume,
        )
        with progress(session.output, session.env.clock, "imported", "rows") as on_progress:
            done = await row_import.import_rows(session, source, choice, on_progress)
        data: dict[str, Any] = {"file": str(file), "rows": done.rows, "expired": done.expired, "seq": done.seq}
        if resume:
            data |= {"skipped": source.skip, "found": done.found}
        session.output.record(data, list(data.items()))

    run(context, work)


def _source(
    session: CliSession,
    file: Path,
    *,
    format_: str,
    layout: RowLayout,
    choice: WriterChoice,
    skip: int | None,
    resume: bool,
) -> "tuple[ImportSource, WriterChoice]":
    """Return what is imported, and the writer, with what an interrupted import has noted about both."""
    from shale.errors import InvalidRequestError
    from shale_cli.commands.kv import row_import
    from shale_cli.commands.kv.import_journal import ImportJournal, may_run

    if resume and (skip is not None or str(file) == "-"):
        raise InvalidRequestError("--resume needs a file, and no --skip")
    options = f"--format {format_} {layout} --key-format {session.output.key_format.value}"
    journal = ImportJournal(file, session.location.url, options) if file.is_file() else None
    if not resume or journal is None:
        source = row_import.source(session.output, file, format_, layout=layout, skip=skip or 0, journal=journal)
        return source, choice
    notes = journal.load()
    if notes is not None and not may_run(notes):
        choice = replace(choice, dead_epoch=notes.get("epoch"))
    return row_import.resumed(session.output, file, format_, layout, journal), choice


def format_of(file: Path, given: FileFormat | None) -> FileFormat:
    """Return the given format, otherwise that of the file name, otherwise NDJSON."""
    if given is not None:
        return given
    return _SUFFIXES.get(file.suffix.lower(), FileFormat.NDJSON)
