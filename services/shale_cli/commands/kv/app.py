"""``shale kv``: reads and writes rows of a database directly."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shale.admin.json_values import rfc3339
from shale_cli.commands.kv import files
from shale_cli.commands.kv.reading import CheckpointId, Pin, Prefix, Start, Stop, bounds, open_reader
from shale_cli.commands.kv.row_writer import RowChange
from shale_cli.commands.kv.writing import Endpoint, TakeOver, TokenFile, WriterChoice
from shale_cli.framework.client_tls import CaFile, ClientCertFile, ClientKeyFile, tls_files
from shale_cli.framework.output.row_json import row_item, row_json
from shale_cli.framework.output.stream import Stream
from shale_cli.framework.output.wal_gaps import AllowWalGap
from shale_cli.framework.output.writer import Output, write_bytes
from shale_cli.framework.session import CliSession, print_error, run

if TYPE_CHECKING:
    from shale.engine.scan.scan import Scan
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
    *,
    endpoint: Endpoint = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    client_cert_file: ClientCertFile = None,
    client_key_file: ClientKeyFile = None,
    take_over: TakeOver = False,
) -> None:
    """Write a row and wait until it is durable.

    While a writer runs, the row is written through its HTTP API; --take-over fences that writer instead.
    """
    tls = tls_files(ca_file, client_cert_file, client_key_file)

    async def work(session: CliSession) -> None:
        change = RowChange(session.output.parse(key), _value(session.output, value, file), ttl=ttl)
        choice = WriterChoice(endpoint, token_file, take_over, tls=tls)
        await _write(session, [change], choice, create_if_missing=True)

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
    endpoint: Endpoint = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    client_cert_file: ClientCertFile = None,
    client_key_file: ClientKeyFile = None,
    take_over: TakeOver = False,
) -> None:
    """Delete rows in one batch and wait until it is durable.  A missing key is not an error.

    While a writer runs, rows are deleted through its HTTP API; --take-over fences that writer instead.  --prefix
    deletes rows in many batches.
    """
    tls = tls_files(ca_file, client_cert_file, client_key_file)

    async def work(session: CliSession) -> None:
        from shale.errors import InvalidRequestError
        from shale_cli.commands.kv.delete_prefix import delete_prefix

        if bool(keys) == (prefix is not None) or (keys and (yes or dry_run)):
            raise InvalidRequestError("give either keys, or --prefix with optional --yes or --dry-run")
        choice = WriterChoice(endpoint, token_file, take_over, tls=tls)
        if prefix is not None:
            await delete_prefix(session, session.output.parse(prefix), choice, yes=yes, dry_run=dry_run)
        else:
            changes = [RowChange(session.output.parse(key), None) for key in keys or []]
            await _write(session, changes, choice, create_if_missing=False)

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


async def _write(
    session: CliSession, changes: list[RowChange], choice: WriterChoice, *, create_if_missing: bool
) -> None:
    from shale.engine.write.batch import WriteBatch
    from shale_cli.commands.kv.writing import add_changes, open_row_writer

    add_changes(WriteBatch(), changes)  # invalid input must not create a database or fence a writer
    async with open_row_writer(session, choice, create_if_missing=create_if_missing) as writer:
        commit = await writer.write(changes)
        await commit.durable()
    session.output.record({"seq": commit.seq}, [("seq", commit.seq)])


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
