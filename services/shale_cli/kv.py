"""``shale kv``: rows of a database, read and written directly."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shale.admin.json_values import rfc3339
from shale_cli import kv_files
from shale_cli.kv_reading import CheckpointId, Pin, Prefix, Start, Stop, bounds, open_reader
from shale_cli.output import Output, write_bytes
from shale_cli.row_json import row_item, row_json
from shale_cli.session import Session, complain, run
from shale_cli.streaming import Stream

if TYPE_CHECKING:
    from shale.engine.batch import WriteBatch
    from shale.engine.scan import Scan
    from shale.types import Row

app = typer.Typer(
    help="Rows.  Reading takes no checkpoint and writes nothing, so garbage may be collected underneath.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Key = Annotated[str, typer.Argument(help="The key, in the key format.")]
Keys = Annotated[list[str] | None, typer.Argument(help="The keys, in the key format.")]


kv_files.register(app)


@app.command(
    epilog="Examples:  shale kv get user/1 -u s3://bucket/db  |  shale kv get 00ff --key-format hex --raw -u s3://bucket/db"
)
def get(
    context: typer.Context,
    *,
    key: Key,
    raw: Annotated[bool, typer.Option("--raw", help="Write the value's bytes and nothing else.")] = False,
    checkpoint: CheckpointId = None,
    pin: Pin = False,
) -> None:
    """Print the row of a key; exit code 3 if there is none."""

    async def work(session: Session) -> int:
        from shale.service.exit_codes import ExitCode

        wanted = session.output.parse(key)
        async with open_reader(session, pin=pin, checkpoint=checkpoint) as reader:
            row = await reader.get_row(wanted)
        if row is None:
            complain(f"{session.location.url}: no row with key {session.output.show(wanted)}")
            return ExitCode.NOT_FOUND
        if raw:
            write_bytes(row.value)
        else:
            session.output.record(row_json(row), _row_table(row, session.output))
        return ExitCode.OK

    run(context, work)


@app.command(
    epilog="Examples:  shale kv put user/1 Ada -u s3://bucket/db  |  shale kv put logo --file logo.png --ttl 7d -u s3://bucket/db"
)
def put(
    context: typer.Context,
    key: Key,
    value: Annotated[str | None, typer.Argument(help="The value, in the key format.")] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Read the value from a file; - is stdin.")] = None,
    ttl: Annotated[str | None, typer.Option(help="Lifetime, for example 1h.")] = None,
) -> None:
    """Write a row and wait until it is durable.

    This opens the database as its writer: a writer that is running is fenced and ends.  To write beside one, use its
    network interface.
    """

    async def work(session: Session) -> None:
        from shale.engine.batch import WriteBatch

        batch = WriteBatch()
        batch.put(session.output.parse(key), _value(session.output, value, file), ttl=ttl)
        await _write(session, batch, create_if_missing=True)

    run(context, work)


@app.command(
    epilog="Examples:  shale kv delete user/1 user/2 -u s3://bucket/db  |  "
    "shale kv delete --prefix tmp/ --dry-run -u s3://bucket/db"
)
def delete(
    context: typer.Context,
    keys: Keys = None,
    *,
    prefix: Annotated[str | None, typer.Option(help="All keys that begin with this: a dry run without --yes.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be deleted; write nothing.")] = False,
) -> None:
    """Delete rows, all in one batch, and wait until that is durable.  A key that is not there is no error.

    This opens the database as its writer: a writer that is running is fenced and ends.  With --prefix the rows go in
    many batches.
    """

    async def work(session: Session) -> None:
        from shale.errors import InvalidRequestError
        from shale_cli.kv_delete import delete_prefix

        if bool(keys) == (prefix is not None) or (keys and (yes or dry_run)):
            raise InvalidRequestError("give either keys, or --prefix and perhaps --yes or --dry-run")
        if prefix is not None:
            await delete_prefix(session, session.output.parse(prefix), yes=yes, dry_run=dry_run)
        else:
            await _delete_keys(session, keys or [])

    run(context, work)


@app.command(
    epilog="Examples:  shale kv scan --prefix user/ --limit 10 -u s3://bucket/db  |  shale kv scan --count -u s3://bucket/db"
)
def scan(
    context: typer.Context,
    *,
    prefix: Prefix = None,
    start: Start = None,
    stop: Stop = None,
    limit: Annotated[int | None, typer.Option(help="Rows at most.", min=0)] = None,
    count: Annotated[bool, typer.Option("--count", help="Only how many rows there are, and their bytes.")] = False,
    checkpoint: CheckpointId = None,
    pin: Pin = False,
) -> None:
    """Print rows in the order of their keys, one line each (JSON lines unless a table is asked for)."""

    async def work(session: Session) -> None:
        wanted = bounds(session.output, prefix, start, stop)
        async with open_reader(session, pin=pin, checkpoint=checkpoint) as reader:
            rows = reader.scan(**wanted, limit=limit)
            if count:
                total, size_bytes = await _count(rows)
                session.output.record({"rows": total, "bytes": size_bytes}, [("rows", total), ("bytes", size_bytes)])
            else:
                await _print(rows, session.output)

    run(context, work)


async def _delete_keys(session: Session, keys: list[str]) -> None:
    from shale.engine.batch import WriteBatch

    batch = WriteBatch()
    for key in keys:
        batch.delete(session.output.parse(key))
    await _write(session, batch, create_if_missing=False)


async def _write(session: Session, batch: "WriteBatch", *, create_if_missing: bool) -> None:
    """Write a batch that has been checked already: a mistake in it must not create a database or fence a writer."""
    from shale.engine.db import Db

    async with Db.open(**session.writing, create_if_missing=create_if_missing) as db:
        handle = await db.write(batch)
        await handle.durable()
    session.output.record({"seq": handle.seq}, [("seq", handle.seq)])


async def _count(rows: "Scan") -> tuple[int, int]:
    total = size_bytes = 0
    while (columns := await rows.columns()) is not None:
        total += len(columns)
        for offsets in (columns.key_offsets, columns.val_offsets):
            size_bytes += int(offsets[-1] - offsets[0])
    return total, size_bytes


async def _print(rows: "Scan", output: Output) -> None:
    """Write rows while they are read: a scan may be larger than memory."""
    stream = Stream(output, ("key", "value", "seq"))
    async for batch in rows.batches(1000):
        for row in batch:
            stream.write(row_item(row, output))
    stream.begin()


def _value(output: Output, text: str | None, file: Path | None) -> bytes:
    from shale.errors import InvalidRequestError

    if (text is None) == (file is None):
        raise InvalidRequestError("give either a value or --file")
    if text is not None:
        return output.parse(text)
    try:
        return sys.stdin.buffer.read() if str(file) == "-" else Path(str(file)).read_bytes()
    except OSError as error:
        raise InvalidRequestError(f"{file}: {error.strerror}") from error


def _row_table(row: "Row", output: Output) -> list[tuple[str, object]]:
    times = (("created", row.create_ts), ("expires", row.expire_ts))
    return [
        ("key", output.show(row.key)),
        ("value", output.show(row.value)),
        ("seq", row.seq),
        *((name, rfc3339(ms)) for name, ms in times if ms is not None),
    ]
