"""``shale compactions``: what is being compacted, was, and will be."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shale_cli.session import Session, run

if TYPE_CHECKING:
    from shale.types import Compactions

app = typer.Typer(help="Versions of the compactions file.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list", epilog="Example:  shale compactions list -u s3://bucket/db")
def list_(
    context: typer.Context,
    start: Annotated[int | None, typer.Option("--start", help="The first version.")] = None,
    end: Annotated[int | None, typer.Option("--end", help="The version to stop before.")] = None,
) -> None:
    """List the stored versions, oldest first."""

    async def work(session: Session) -> None:
        from shale.protocol.compactions_store import CompactionsStore
        from shale_cli.versions import list_versions

        await list_versions(session, "compactions", CompactionsStore, start, end)

    run(context, work)


@app.command(
    epilog="Examples:  shale compactions show -u s3://bucket/db  |  shale compactions show 12 -u s3://bucket/db"
)
def show(
    context: typer.Context,
    file_id: Annotated[int | None, typer.Argument(metavar="ID", help="A version; the latest by default.")] = None,
) -> None:
    """Show a version: every compaction with its sources, status and worker."""

    async def work(session: Session) -> None:
        from shale.protocol.compactions_store import CompactionsStore
        from shale_cli.versions import show_version

        await show_version(session, "compactions", CompactionsStore, file_id, describe)

    run(context, work)


def describe(compactions: "Compactions") -> tuple[dict[str, Any], list[tuple[str, object]]]:
    """A version as JSON, and as rows of a table."""
    from shale_cli.plain import plain

    data: dict[str, Any] = plain(compactions)
    return data, list(_rows(compactions))


def _rows(compactions: "Compactions") -> Iterator[tuple[str, object]]:
    yield "compactor_epoch", compactions.compactor_epoch
    for entry in compactions.entries:
        sources = [*(f"L0 {view}" for view in entry.spec.l0_view_ids), *(f"SR {run}" for run in entry.spec.sorted_runs)]
        destination = getattr(entry.spec, "destination", None)
        target = "nothing" if destination is None else f"SR {destination}"
        worker = f"  by {entry.worker.worker_id}" if entry.worker is not None else ""
        yield str(entry.id), f"{entry.status.name.lower()}  {', '.join(sources)} -> {target}{worker}"
