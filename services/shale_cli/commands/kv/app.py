"""``shale kv``: reads and writes rows of a database directly."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shale.admin.json_values import rfc3339
from shale_cli.commands.kv import files
from shale_cli.commands.kv.reading import AllowWalGap, CheckpointId, Pin, Prefix, Start, Stop, bounds, open_reader
from shale_cli.framework.output.row_json import row_item, row_json
from shale_cli.framework.output.stream import Stream
from shale_cli.framework.output.writer import Output, write_bytes
from shale_cli.framework.session import CliSession, print_error, run

if TYPE_CHECKING:
    from shale.engine.scan.scan import Scan
    from shale.engine.write.batch import WriteBatch
    from shale.types import Row

app = typer.Typer(
    help="Read and write rows.  Reads take no checkpoint, so garbage collection can make a long read fail.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Key = Annotated[str, typer.Argument(help="The key, in the key format.")]
Keys = Annotated[list[str] | None, typer.Argument(help="The keys, in the key format.")]


files.register(app)


@app.command(
    epilog="Examples:  shale kv get user/1 -u s3://bucket/db  |  shale kv get 00ff --key-format hex --raw -u s3://bucket/db"
)
def get(
    context: typer.Context,
    *,
    key: Key,
    raw: Annotated[bool, typer.Option("--raw", help="Print only the bytes of the value.")] = False,
    checkpoint: CheckpointId = None,
    pin: Pin = False,
    allow_wal_gap: AllowWalGap = False,
) -> None:
    """Print the row of a key; exit 3 if it does not exist."""

    async def work(session: CliSession) -> int:
        from shale.service.exit_codes import ExitCode

        wanted = session.output.parse(key)
        async with open_reader(session, pin=pin, checkpoint=checkpoint, allow_wal_gap=allow_wal_gap) as reader:
            row = await reader.get_row(wanted)
        if row is None:
            print_error(f"{session.location.url}: no row with key {session.output.show(wanted)}")
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
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Read the value from a file; -: stdin.")] = None,
    ttl: Annotated[str | None, typer.Option(help="Lifetime, for example 1h.")] = None,
) -> None:
    """Write a row and wait until it is durable.

    The command opens the database as its writer, which fences and ends a running writer.  To keep that writer, use its
    HTTP API.
    """

    async def work(session: CliSession) -> None:
        from shale.engine.write.batch import WriteBatch

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
    prefix: Annotated[
        str | None, typer.Option(help="Delete all keys with this prefix; a dry run without --yes.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Perform the deletion.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the rows that would be deleted.")] = False,
) -> None:
    """Delete rows in one batch and wait until it is durable.  A missing key is not an error.

    The command opens the database as its writer, which fences and ends a running writer.  --prefix deletes rows in many
    batches.
    """

    async def work(session: CliSession) -> None:
        from shale.errors import InvalidRequestError
        from shale_cli.commands.kv.delete_prefix import delete_prefix

        if bool(keys) == (prefix is not None) or (keys and (yes or dry_run)):
            raise InvalidRequestError("give either keys, or --prefix with optional --yes or --dry-run")
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
    limit: Annotated[int | None, typer.Option(help="Limit of rows.", min=0)] = None,
    count: Annotated[bool, typer.Option("--count", help="Print only the number of rows and bytes.")] = False,
    checkpoint: CheckpointId = None,
    pin: Pin = False,
    allow_wal_gap: AllowWalGap = False,
) -> None:
    """Print rows in key order, one line each (JSON lines unless the output is a table)."""

    async def work(session: CliSession) -> None:
        wanted = bounds(session.output, prefix, start, stop)
        async with open_reader(session, pin=pin, checkpoint=checkpoint, allow_wal_gap=allow_wal_gap) as reader:
            rows = reader.scan(**wanted, limit=limit)
            if count:
                total, size_bytes = await _count(rows)
                session.output.record({"rows": total, "bytes": size_bytes}, [("rows", total), ("bytes", size_bytes)])
            else:
                await _print(rows, session.output)

    run(context, work)


async def _delete_keys(session: CliSession, keys: list[str]) -> None:
    from shale.engine.write.batch import WriteBatch

    batch = WriteBatch()
    for key in keys:
        batch.delete(session.output.parse(key))
    await _write(session, batch, create_if_missing=False)


async def _write(session: CliSession, batch: "WriteBatch", *, create_if_missing: bool) -> None:
    """Write a batch.  The caller has validated it: invalid input must not create a database or fence a writer."""
    from shale.engine.db import Db

    async with Db.open(**session.writer_args, create_if_missing=create_if_missing) as db:
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
    """Print rows while they are read, because a scan may be larger than memory."""
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
