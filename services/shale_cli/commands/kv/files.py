"""``shale kv export`` and ``import``: rows to and from files."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from shale_cli.commands.kv.reading import AllowWalGap, CheckpointId, Pin, Prefix, Start, Stop, bounds, open_reader
from shale_cli.commands.kv.writing import Endpoint, TakeOver, TokenFile, WriterChoice
from shale_cli.framework.session import CliSession, run


class FileFormat(StrEnum):
    """The format of a file."""

    NDJSON = "ndjson"
    PARQUET = "parquet"


Format = Annotated[FileFormat | None, typer.Option("--format", help="By default from the file name.")]


def register(app: typer.Typer) -> None:
    """Add both commands to the noun."""
    app.command(
        "export",
        epilog="Examples:  shale kv export rows.ndjson -u s3://bucket/db  |  "
        "shale kv export - --prefix user/ -u s3://bucket/db | gzip > users.ndjson.gz  |  "
        "shale kv export rows.parquet --pin -u s3://bucket/db",
    )(export)
    app.command(
        "import",
        epilog="Examples:  shale kv import rows.ndjson -u s3://bucket/db  |  "
        "gunzip -c users.ndjson.gz | shale kv import - -u s3://bucket/db",
    )(import_)


def export(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="The file to write; -: stdout.")],
    *,
    format_: Format = None,
    prefix: Prefix = None,
    start: Start = None,
    stop: Stop = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted export into this file.")] = False,
    checkpoint: CheckpointId = None,
    pin: Pin = False,
    allow_wal_gap: AllowWalGap = False,
) -> None:
    """Write rows to a file in key order, in bounded memory: NDJSON, or Parquet (needs shale[arrow]).

    An incomplete file is named FILE.partial.  Lines have key_b64, value_b64, seq and times, like `kv scan`.
    """

    async def work(session: CliSession) -> None:
        from shale_cli.commands.kv import row_export
        from shale_cli.framework.output.progress import progress

        wanted = bounds(session.output, prefix, start, stop)
        target = row_export.target(file, format_of(file, format_).value, resume=resume)
        with progress(session.output, session.env.clock, "exported", "rows") as on_progress:
            async with open_reader(session, pin=pin, checkpoint=checkpoint, allow_wal_gap=allow_wal_gap) as reader:
                rows = await row_export.export(reader, wanted, target, on_progress)
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
    skip: Annotated[int, typer.Option(min=0, help="Rows to skip: the number that an interrupted import printed.")] = 0,
    endpoint: Endpoint = None,
    token_file: TokenFile = None,
    take_over: TakeOver = False,
) -> None:
    """Write the rows of a file in batches, in bounded memory; expired rows are skipped.

    Lines need key_b64 and value_b64, or key and value in the key format, and may have expire_ms.  Parquet needs the
    columns key and value, and may have expire_ts.  While a writer runs, rows are written through its HTTP API;
    --take-over fences that writer instead.
    """

    async def work(session: CliSession) -> None:
        from shale_cli.commands.kv import row_import
        from shale_cli.framework.output.progress import progress

        source = row_import.source(session.output, file, format_of(file, format_).value, skip=skip)
        with progress(session.output, session.env.clock, "imported", "rows") as on_progress:
            choice = WriterChoice(endpoint, token_file, take_over)
            done = await row_import.import_rows(session, source, choice, on_progress, skip=skip)
        session.output.record(
            {"file": str(file), "rows": done.rows, "expired": done.expired, "seq": done.seq},
            [("file", file), ("rows", done.rows), ("expired", done.expired), ("seq", done.seq)],
        )

    run(context, work)


def format_of(file: Path, given: FileFormat | None) -> FileFormat:
    """Return the given format, otherwise that of the file name, otherwise NDJSON."""
    if given is not None:
        return given
    return FileFormat.PARQUET if file.suffix.lower() == ".parquet" else FileFormat.NDJSON
