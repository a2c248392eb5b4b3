"""``shale clone``: creates databases from other databases."""

from typing import TYPE_CHECKING, Annotated

import typer

from shale_cli.framework.admin_token import AdminTokenFile, admin_token
from shale_cli.framework.client_tls import CaFile, ClientCertFile, ClientKeyFile, tls_files
from shale_cli.framework.session import CliSession, print_error, run

if TYPE_CHECKING:
    from shale.clones.request import CloneResult, CloneSource

app = typer.Typer(
    help="Clones: databases that share the SSTs of their sources.", no_args_is_help=True, rich_markup_mode=None
)


@app.callback()
def _nouns() -> None:
    """Clones: databases that share the SSTs of their sources."""


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
            help="A database in the same store, as path or URL: PATH[@CHECKPOINT], with a checkpoint id or name; "
            "repeat to merge several."
        ),
    ],
    source_range: Annotated[
        list[str] | None, typer.Option(help="START..END, the keys to take from a source; once per source, in order.")
    ] = None,
    range_: Annotated[
        str | None, typer.Option("--range", help="START..END, the keys to take; either side may be empty.")
    ] = None,
    writer_url: Annotated[
        list[str] | None,
        typer.Option(
            help="Admin address of the source's writer, which first makes a checkpoint of all its rows; once per "
            "source, in order, '' for none."
        ),
    ] = None,
    admin_token_file: AdminTokenFile = None,
    ca_file: CaFile = None,
    client_cert_file: ClientCertFile = None,
    client_key_file: ClientKeyFile = None,
    allow_wal_gap: Annotated[
        bool,
        typer.Option("--allow-wal-gap", help="Clone a source although the clone will lack durable rows of its WAL."),
    ] = False,
    allow_gaps: Annotated[
        bool, typer.Option("--allow-gaps", help="Allow gaps between the ranges of the sources.")
    ] = False,
    compact_union: Annotated[
        bool, typer.Option("--compact-union", help="Merge sorted runs of several sources where possible.")
    ] = False,
) -> None:
    """Create a clone at --url; after an interruption, run the command again.

    Fails if the WAL of a source holds durable rows that the clone would lack: give --writer-url while the writer runs.
    Only rows in the WAL are copied.  The sources keep the SSTs of the clone until it does not need them any more.
    """

    async def work(session: CliSession) -> None:
        from shale_cli.commands.clone.sources import parse_range, parse_sources

        sources = await parse_sources(session, source, source_range or ())
        if writer_url:
            from shale_cli.commands.clone.writer_checkpoints import with_writer_checkpoints

            token, tls = admin_token(admin_token_file), tls_files(ca_file, client_cert_file, client_key_file)
            sources = await with_writer_checkpoints(session, sources, writer_url, token, tls)
        keys = None if range_ is None else parse_range(session.output, range_)
        async with session.admin() as admin:
            result = await admin.clones.create(
                *sources,
                keys=keys,
                allow_wal_gap=allow_wal_gap,
                allow_gaps=allow_gaps,
                compact_union=compact_union,
            )
        _show(session, sources, result)

    run(context, work)


def _show(session: CliSession, sources: "tuple[CloneSource, ...]", result: "CloneResult") -> None:
    if (count := result.wal_files_left_out) > 0:
        what = "1 WAL file holds" if count == 1 else f"{count} WAL files hold"
        print_error(f"{what} rows that are not in the clone")
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
