"""``shale kv delete --prefix``: deletes many rows in batches, after confirmation."""

from typing import TYPE_CHECKING, Any

from shale_cli.commands.kv.reading import open_reader
from shale_cli.commands.kv.row_writer import RowChange
from shale_cli.commands.kv.writing import WriterChoice, open_row_writer
from shale_cli.framework.confirmation import ask_confirmation
from shale_cli.framework.output.progress import progress
from shale_cli.framework.output.stream import Stream
from shale_cli.framework.session import CliSession

if TYPE_CHECKING:
    from shale.types import Row

_BATCH = 1000


async def delete_prefix(session: CliSession, prefix: bytes, choice: WriterChoice, *, yes: bool, dry_run: bool) -> None:
    """Delete every row whose key starts with ``prefix``; a dry run lists the rows with their sizes.

    Each batch is durable before it counts as deleted, so an interrupted deletion can be run again.
    """
    if not yes:
        rows, size_bytes = await _list(session, prefix)
        what = f"delete {rows:,} rows with {size_bytes:,} bytes of keys and values"
        if not ask_confirmation(session.output, session.alias, yes=yes, dry_run=dry_run, what=what):
            session.output.note(f"{rows:,} rows, {size_bytes:,} bytes")
            return
    else:
        ask_confirmation(session.output, session.alias, yes=yes, dry_run=dry_run, what="delete rows")
    deleted, seq = await _delete(session, prefix, choice)
    session.output.record({"deleted": deleted, "seq": seq}, [("deleted", deleted), ("seq", seq)])


async def _list(session: CliSession, prefix: bytes) -> tuple[int, int]:
    stream = Stream(session.output, ("key", "bytes"))
    rows = size_bytes = 0
    stream.begin()
    async with open_reader(session) as reader:
        async for batch in reader.scan(prefix=prefix).batches(_BATCH):
            for row in batch:
                stream.write(_item(session, row))
                rows, size_bytes = rows + 1, size_bytes + len(row.key) + len(row.value)
    return rows, size_bytes


def _item(session: CliSession, row: "Row") -> dict[str, Any]:
    from shale.admin.json_values import b64

    data: dict[str, Any] = {"key_b64": b64(row.key), "bytes": len(row.key) + len(row.value)}
    return {**data, "key": session.output.show(row.key)} if session.output.is_human_readable else data


async def _delete(session: CliSession, prefix: bytes, choice: WriterChoice) -> tuple[int, int | None]:
    deleted, seq = 0, None
    with progress(session.output, session.env.clock, "deleted", "rows") as on_progress:
        async with open_row_writer(session, choice, create_if_missing=False) as writer:
            async for keys in writer.scan_keys(prefix):
                commit = await writer.write([RowChange(key, None) for key in keys])
                await commit.durable()
                seq = commit.seq
                deleted += len(keys)
                on_progress(deleted)
    return deleted, seq
