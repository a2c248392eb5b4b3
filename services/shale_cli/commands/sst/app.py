"""``shale sst``: lists, analyses and dumps SSTs."""

from typing import Annotated

import typer

from shale_cli.framework.session import CliSession, run

app = typer.Typer(help="List, analyse and dump SSTs.", no_args_is_help=True, rich_markup_mode=None)

Id = Annotated[str, typer.Argument(metavar="ID", help="The ULID of the SST.")]


@app.command("list", epilog="Examples:  shale sst list -u s3://bucket/db  |  shale sst list -u s3://bucket/db -o csv")
def list_(
    context: typer.Context,
    manifest: Annotated[int | None, typer.Option(help="A version of the manifest; by default the latest.")] = None,
) -> None:
    """List the SSTs of a manifest in the order in which reads visit them."""

    async def work(session: CliSession) -> None:
        from shale_cli.commands.sst.views import COLUMNS, load_manifest, sst_items

        async with session.open_store() as store:
            found = await load_manifest(session, store, manifest)
        session.output.listing("ssts", sst_items(session, found), COLUMNS)

    run(context, work)


@app.command(
    epilog="Example:  shale sst stats 01JD4ZC8M7S5X4T2Q3W1E0R9YB -u s3://bucket/db  |  "
    "shale sst stats 01JD4ZC8M7S5X4T2Q3W1E0R9YB -u s3://bucket/db -o yaml"
)
def stats(context: typer.Context, sst_id: Id) -> None:
    """Show one SST: sections, blocks, filters, rows by kind, compression ratio."""

    async def work(session: CliSession) -> None:
        from shale_cli.commands.sst.stats import read_stats
        from shale_cli.commands.sst.views import find_sst, load_manifest

        async with session.open_store() as store:
            view, key = find_sst(session, await load_manifest(session, store), sst_id)
            data, rows = await read_stats(session, store, view.sst, key)
        session.output.record(data, rows)

    run(context, work)


@app.command(
    epilog="Examples:  shale sst dump 01JD4ZC8M7S5X4T2Q3W1E0R9YB --limit 10 -u s3://bucket/db  |  "
    "shale sst dump 01JD4ZC8M7S5X4T2Q3W1E0R9YB --prefix user/ -u s3://bucket/db"
)
def dump(
    context: typer.Context,
    *,
    sst_id: Id,
    prefix: Annotated[str | None, typer.Option(help="Only keys with this prefix.")] = None,
    start: Annotated[str | None, typer.Option(help="The first key, inclusive.")] = None,
    stop: Annotated[str | None, typer.Option(help="The last key, exclusive.")] = None,
    limit: Annotated[int | None, typer.Option(help="Limit of rows.", min=0)] = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="Also print rows that are outside every view of this database.")
    ] = False,
) -> None:
    """Print the stored rows of one SST, one line each: all versions, tombstones and operands."""

    async def work(session: CliSession) -> None:
        from shale.kernels.rows import entries_from_rows
        from shale_cli.commands.sst.views import find_sst, key_range, load_manifest, rows_of
        from shale_cli.framework.output.row_json import entry_item
        from shale_cli.framework.output.stream import Stream

        wanted = key_range(session.output, prefix, start, stop)
        stream = Stream(session.output, ("seq", "kind", "key", "value"))
        left = limit
        async with session.open_store() as store:
            manifest = await load_manifest(session, store)
            find_sst(session, manifest, sst_id)
            stream.begin()
            async for rows in rows_of(session, store, manifest, sst_id, wanted, whole=whole):
                for entry in entries_from_rows(rows if left is None else rows.slice(0, min(left, len(rows)))):
                    stream.write(entry_item(entry, session.output))
                if left is not None:
                    left -= min(left, len(rows))
                    if not left:
                        return

    run(context, work)
