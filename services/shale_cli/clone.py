"""``shale clone``: databases made of other databases."""

from typing import TYPE_CHECKING, Annotated

import typer

from shale_cli.session import Session, complain, run

if TYPE_CHECKING:
    from shale.clones.request import CloneResult, CloneSource

app = typer.Typer(
    help="Databases that begin with what others hold, without copying it.", no_args_is_help=True, rich_markup_mode=None
)


@app.callback()
def _nouns() -> None:
    """Databases that begin with what others hold, without copying it."""


@app.command(
    epilog="Examples:  shale clone create --source orders -u s3://bucket/orders-test  |  "
    "shale clone create --source orders --range ..m -u s3://bucket/orders-left  |  "
    "shale clone create --source orders-left --source orders-right -u s3://bucket/orders-again"
)
def create(
    context: typer.Context,
    *,
    source: Annotated[
        list[str],
        typer.Option(
            help="A database in the same store, as a path or URL: PATH[@CHECKPOINT], a checkpoint by its id or name; "
            "repeat to unite several."
        ),
    ],
    source_range: Annotated[
        list[str] | None, typer.Option(help="START..END, the keys taken from each source; once for each, in order.")
    ] = None,
    range_: Annotated[
        str | None, typer.Option("--range", help="START..END, the keys taken; either side may be empty.")
    ] = None,
    require_complete: Annotated[
        bool, typer.Option("--require-complete", help="Refuse sources with rows in the WAL that would be missing.")
    ] = False,
    allow_gaps: Annotated[
        bool, typer.Option("--allow-gaps", help="The ranges of the sources need not be adjacent.")
    ] = False,
    compact_union: Annotated[
        bool, typer.Option("--compact-union", help="Join parts of several sources where they fit together.")
    ] = False,
) -> None:
    """Make a clone at --url; run it again after an interruption.

    The WAL of sources that are united or cut must hold no rows: flush and close them first.  Nothing is copied but the
    WAL, and the sources keep what the clone needs until it needs it no more.
    """

    async def work(session: Session) -> None:
        from shale.admin.admin import Admin
        from shale_cli.clone_sources import parse_range, parse_sources

        sources = await parse_sources(session, source, source_range or ())
        keys = None if range_ is None else parse_range(session.output, range_)
        async with Admin(
            store=session.location.store_url,
            path=session.path,
            wal_store=session.wal_store,
            env=session.env,
            store_options=session.store_options,
        ) as admin:
            result = await admin.clones.create(
                *sources,
                keys=keys,
                require_complete=require_complete,
                allow_gaps=allow_gaps,
                compact_union=compact_union,
            )
        _show(session, sources, result)

    run(context, work)


def _show(session: Session, sources: "tuple[CloneSource, ...]", result: "CloneResult") -> None:
    if (count := result.wal_files_left_out) > 0:
        what = "1 WAL file holds" if count == 1 else f"{count} WAL files hold"
        complain(f"{what} rows that are not in the clone (--require-complete refuses that)")
    checkpoints = [None if checkpoint is None else str(checkpoint) for checkpoint in result.checkpoints]
    named = [
        {"path": each.path, "checkpoint": checkpoint} for each, checkpoint in zip(sources, checkpoints, strict=True)
    ]
    data = {
        "path": result.path,
        "manifest_id": result.manifest_id,
        "is_new": result.is_new,
        "sources": named,
        "wal_files_copied": result.wal_files_copied,
        "wal_files_left_out": result.wal_files_left_out,
    }
    rows: list[tuple[str, object]] = [(name, value) for name, value in data.items() if name != "sources"]
    rows += [("source", f"{each['path']}  checkpoint {each['checkpoint'] or '-'}") for each in named]
    session.output.record(data, rows)
