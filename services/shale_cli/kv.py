"""``shale kv``: rows of a database, read and written directly."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shale.admin.json_values import b64, rfc3339
from shale_cli.output import Format, Output, write_bytes, write_line, write_text
from shale_cli.session import Session, complain, run

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


Pin = Annotated[bool, typer.Option("--pin", help="Protect what is read by a checkpoint while reading; writes one.")]
Keys = Annotated[list[str], typer.Argument(help="The keys, in the key format.")]


@app.command()
def get(
    context: typer.Context,
    key: Key,
    raw: Annotated[bool, typer.Option("--raw", help="Write the value's bytes and nothing else.")] = False,
    pin: Pin = False,
) -> None:
    """Print the row of a key; exit code 3 if there is none."""

    async def work(session: Session) -> int:
        from shale.engine.db_reader import DbReader
        from shale.service.exit_codes import ExitCode

        wanted = session.output.parse(key)
        async with DbReader.open(**session.place, follow_latest=not pin) as reader:
            row = await reader.get_row(wanted)
        if row is None:
            complain(f"{session.location.url}: no row with key {session.output.show(wanted)}")
            return ExitCode.NOT_FOUND
        if raw:
            write_bytes(row.value)
        else:
            session.output.record(_row_json(row), _row_table(row, session.output))
        return ExitCode.OK

    run(context, work)


@app.command()
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


@app.command()
def delete(
    context: typer.Context, keys: Annotated[list[str], typer.Argument(help="The keys, in the key format.")]
) -> None:
    """Delete rows, all in one batch, and wait until that is durable.  A key that is not there is no error.

    This opens the database as its writer: a writer that is running is fenced and ends.
    """

    async def work(session: Session) -> None:
        from shale.engine.batch import WriteBatch

        batch = WriteBatch()
        for key in keys:
            batch.delete(session.output.parse(key))
        await _write(session, batch, create_if_missing=False)

    run(context, work)


@app.command()
def scan(
    context: typer.Context,
    *,
    prefix: Annotated[str | None, typer.Option(help="Only keys that begin with this.")] = None,
    start: Annotated[str | None, typer.Option(help="The first key, inclusive.")] = None,
    stop: Annotated[str | None, typer.Option(help="The last key, exclusive.")] = None,
    limit: Annotated[int | None, typer.Option(help="Rows at most.", min=0)] = None,
    count: Annotated[bool, typer.Option("--count", help="Only how many rows there are.")] = False,
    pin: Pin = False,
) -> None:
    """Print rows in the order of their keys, one line each (JSON lines unless a table is asked for)."""

    async def work(session: Session) -> None:
        from shale.engine.db_reader import DbReader

        parse = session.output.parse
        bounds = [None if text is None else parse(text) for text in (prefix, start, stop)]
        if not pin and sys.stderr.isatty():
            session.output.note("reading without a checkpoint: if garbage is collected underneath, this fails (--pin)")
        async with DbReader.open(**session.place, follow_latest=not pin) as reader:
            rows = reader.scan(prefix=bounds[0], start=bounds[1], stop=bounds[2], limit=limit)
            if count:
                total = await _count(rows)
                session.output.record({"rows": total}, [("rows", total)])
            else:
                await _print(rows, session.output)

    run(context, work)


async def _write(session: Session, batch: "WriteBatch", *, create_if_missing: bool) -> None:
    """Write a batch that has been checked already: a mistake in it must not create a database or fence a writer."""
    from shale.engine.db import Db

    async with Db.open(**session.place, create_if_missing=create_if_missing) as db:
        handle = await db.write(batch)
        await handle.durable()
    session.output.record({"seq": handle.seq}, [("seq", handle.seq)])


async def _count(rows: "Scan") -> int:
    total = 0
    while (columns := await rows.columns()) is not None:
        total += len(columns)
    return total


async def _print(rows: "Scan", output: Output) -> None:
    """Write rows while they are read: a scan may be larger than memory."""
    is_table = output.format is Format.TABLE
    if is_table:
        write_text("KEY\tVALUE\tSEQ")
    async for batch in rows.batches(1000):
        for row in batch:
            if is_table:
                write_text(f"{output.show(row.key)}\t{output.show(row.value)}\t{row.seq}")
            else:
                write_line(_row_json(row))


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


def _row_json(row: "Row") -> dict[str, Any]:
    data: dict[str, Any] = {"key_b64": b64(row.key), "value_b64": b64(row.value), "seq": row.seq}
    for name, ms in (("create", row.create_ts), ("expire", row.expire_ts)):
        data[f"{name}_time"] = None if ms is None else rfc3339(ms)
        data[f"{name}_ms"] = ms
    return data


def _row_table(row: "Row", output: Output) -> list[tuple[str, object]]:
    times = (("created", row.create_ts), ("expires", row.expire_ts))
    return [
        ("key", output.show(row.key)),
        ("value", output.show(row.value)),
        ("seq", row.seq),
        *((name, rfc3339(ms)) for name, ms in times if ms is not None),
    ]
