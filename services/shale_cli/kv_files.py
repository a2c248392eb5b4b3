"""``shale kv export`` and ``import``: rows into files and back."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from shale_cli.kv_reading import CheckpointId, Pin, Prefix, Start, Stop, bounds, open_reader
from shale_cli.session import Session, run


class FileFormat(StrEnum):
    """What the files are."""

    NDJSON = "ndjson"
    PARQUET = "parquet"


Format = Annotated[FileFormat | None, typer.Option("--format", help="By default what the name of the file says.")]


def register(app: typer.Typer) -> None:
    """Add both commands."""
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
    file: Annotated[Path, typer.Argument(help="Where to write; - is stdout.")],
    *,
    format_: Format = None,
    prefix: Prefix = None,
    start: Start = None,
    stop: Stop = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where an export into this file stopped.")] = False,
    checkpoint: CheckpointId = None,
    pin: Pin = False,
) -> None:
    """Write rows to a file in the order of their keys, in bounded memory: NDJSON, or Parquet (needs shale[arrow]).

    Until it is complete the file is called FILE.partial.  Lines have key_b64, value_b64, seq and times, as `kv scan`.
    """

    async def work(session: Session) -> None:
        from shale_cli import row_export
        from shale_cli.progress import progress

        wanted = bounds(session.output, prefix, start, stop)
        target = row_export.target(file, format_of(file, format_).value, resume=resume)
        with progress(session.output, session.env.clock, "exported", "rows") as on_progress:
            async with open_reader(session, pin=pin, checkpoint=checkpoint) as reader:
                rows = await row_export.export(reader, wanted, target, on_progress)
        if target.is_stdout:
            session.output.note(f"exported {rows:,} rows")
        else:
            session.output.record({"file": str(file), "rows": rows}, [("file", file), ("rows", rows)])

    run(context, work)


def import_(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="What to read; - is stdin.")],
    *,
    format_: Format = None,
    skip: Annotated[int, typer.Option(min=0, help="Rows to pass over, as an import that stopped has told.")] = 0,
) -> None:
    """Write the rows of a file, batch by batch, in bounded memory; rows that have expired are left out.

    Lines need key_b64 and value_b64, or key and value in the key format, and may have expire_ms; Parquet the columns
    key and value, and perhaps expire_ts.  This opens the database as its writer: a writer that is running is fenced.
    """

    async def work(session: Session) -> None:
        from shale_cli import row_import
        from shale_cli.progress import progress

        source = row_import.source(session.output, file, format_of(file, format_).value, skip=skip)
        with progress(session.output, session.env.clock, "imported", "rows") as on_progress:
            done = await row_import.import_rows(session, source, on_progress, skip=skip)
        session.output.record(
            {"file": str(file), "rows": done.rows, "expired": done.expired, "seq": done.seq},
            [("file", file), ("rows", done.rows), ("expired", done.expired), ("seq", done.seq)],
        )

    run(context, work)


def format_of(file: Path, said: FileFormat | None) -> FileFormat:
    """What was said, else what the name of the file ends in, else NDJSON."""
    if said is not None:
        return said
    return FileFormat.PARQUET if file.suffix.lower() == ".parquet" else FileFormat.NDJSON
