"""``shale wal``: lists and follows the write-ahead log."""

from typing import TYPE_CHECKING, Annotated

import typer

from shale_cli.framework.output.wal_gaps import AllowWalGap, warn_of_gaps
from shale_cli.framework.session import CliSession, run

if TYPE_CHECKING:
    from shale.engine.wal.feed.feed import WalFeed
    from shale.engine.wal.feed.offset import FeedOffset
    from shale.engine.wal.feed.reading import OnGap
    from shale.protocol.wal_store import WalStore
    from shale_cli.framework.output.stream import Stream

app = typer.Typer(help="The write-ahead log.", no_args_is_help=True, rich_markup_mode=None)

_FILES_AT_ONCE = 64
_ROW_COLUMNS = ("wal_id", "seq", "kind", "key", "value")


@app.command(
    "list", epilog="Examples:  shale wal list -u s3://bucket/db  |  shale wal list -u s3://bucket/db --columns id,bytes"
)
def list_(context: typer.Context) -> None:
    """List the stored files, oldest first, and show which are needed for replay and which are fences."""

    async def work(session: CliSession) -> None:
        from shale.admin.json_values import time_fields
        from shale.protocol.manifest_store import ManifestStore
        from shale.protocol.wal_store import WalStore

        async with session.open_store() as store, session.open_wal_store(store) as wal_store:
            latest = await ManifestStore(store, session.path, session.env).read_latest()
            files = await WalStore(wal_store, session.path).list()
        items = [
            {
                "id": file.id,
                "bytes": file.size,
                **time_fields("last_modified", file.last_modified_ms),
                "is_fence": file.is_fence,
                "is_needed": file.id > latest.value.replay_after_wal_id,
            }
            for file in files
        ]
        session.output.listing("files", items, ("id", "bytes", "last_modified", "is_fence", "is_needed"))

    run(context, work)


@app.command(
    epilog="Examples:  shale wal rows -u s3://bucket/db  |  shale wal rows user:7 -u s3://bucket/db  |"
    "  shale wal rows --first 12 --last 14 -u s3://bucket/db"
)
def rows(
    context: typer.Context,
    key: Annotated[str | None, typer.Argument(help="Only this key, in the key format; its newest row first.")] = None,
    *,
    first: Annotated[
        int | None, typer.Option(help="The first file. Default: the first with rows that may not be in L0.")
    ] = None,
    last: Annotated[int | None, typer.Option(help="The last file. Default: the end of the WAL.")] = None,
    allow_wal_gap: AllowWalGap = False,
) -> None:
    """Print the stored rows of WAL files, also tombstones and merge operands, without opening the database.

    Rows come in the order in which they were written. No table is built in memory, so the WAL may be of any length.
    """

    async def work(session: CliSession) -> None:
        from shale_cli.framework.output.row_json import entry_item
        from shale_cli.framework.output.stream import Stream

        stream = Stream(session.output, _ROW_COLUMNS)
        async with session.admin() as admin:
            wal = admin.wal
            on_gap = (lambda gap: warn_of_gaps([gap])) if allow_wal_gap else None
            found = (
                wal.rows(first, last, on_gap=on_gap)
                if key is None
                else wal.versions(session.output.parse(key), first, last, on_gap=on_gap)
            )
            stream.begin()
            async for row in found:
                stream.write(entry_item(row.entry, session.output, wal_id=row.wal_id))
        stream.flush()

    run(context, work)


@app.command(
    epilog="Examples:  shale wal tail -u s3://bucket/db  |  shale wal tail --from earliest --once -u s3://bucket/db"
)
def tail(
    context: typer.Context,
    *,
    from_: Annotated[str, typer.Option("--from", help="latest, earliest, or seq:N.")] = "latest",
    once: Annotated[bool, typer.Option("--once", help="Stop at the current end instead of waiting for more.")] = False,
    poll: Annotated[str, typer.Option(help="The poll interval.")] = "1s",
    allow_wal_gap: AllowWalGap = False,
) -> None:
    """Print changes as they become durable, in order of sequence numbers, until Ctrl-C.

    The WAL starts at the oldest file that garbage collection has kept.  Lost files, and changes that bypass the WAL
    (bulk loads, a writer without WAL), end this command with an error; --allow-wal-gap goes on without them.
    """

    async def work(session: CliSession) -> None:
        import anyio

        from shale.core.settings_values import parse_duration_s
        from shale.engine.wal.feed.feed import WalFeed
        from shale.engine.wal.feed.offset import parse_start
        from shale.engine.wal.feed.reading import OnGap
        from shale.protocol.manifest_store import ManifestStore
        from shale.protocol.wal_store import WalStore
        from shale_cli.framework.output.stream import Stream

        poll_s = parse_duration_s(poll, name="--poll")
        begin = parse_start(from_)
        stream = Stream(session.output, _ROW_COLUMNS)
        async with session.open_store() as store, session.open_wal_store(store) as wal_store:
            manifests = ManifestStore(store, session.path, session.env)
            wal = WalStore(wal_store, session.path, transformer=session.block_transformer)
            on_gap = OnGap.SKIP if allow_wal_gap else OnGap.FAIL
            feed = WalFeed(wal, manifests, session.env, on_gap=on_gap, on_skipped=warn_of_gaps)
            offset = await feed.begin(begin)
            stream.begin()
            while True:
                end = await feed.end(offset, max_files=_FILES_AT_ONCE)
                if end != offset:
                    await _print(session, feed, wal, start=offset, end=end, stream=stream, on_gap=on_gap)
                    offset = end
                elif once:
                    return
                else:
                    await anyio.sleep(poll_s)

    run(context, work)


async def _print(
    session: CliSession,
    feed: "WalFeed",
    wal: "WalStore",
    *,
    start: "FeedOffset",
    end: "FeedOffset",
    stream: "Stream",
    on_gap: "OnGap",
) -> None:
    from shale.engine.wal.feed.reading import read_part
    from shale.kernels.rows import entries_from_rows
    from shale_cli.framework.output.row_json import entry_item

    for part in await feed.plan(start, end, parts_max=1):
        async for wal_id, rows in read_part(wal, part, session.env, on_gap=on_gap):
            for entry in entries_from_rows(rows):
                stream.write(entry_item(entry, session.output, wal_id=wal_id))
            # The reader of a pipe must not wait for the next WAL file.
            stream.flush()
