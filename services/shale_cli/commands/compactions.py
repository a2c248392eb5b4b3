"""``shale compactions``: versions of the compactions file."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import typer

from shale_cli.commands.version_commands import VersionedFiles, add_version_commands

if TYPE_CHECKING:
    from shale.types import Compactions
    from shale_cli.commands.versions import StoreClass

app = typer.Typer(help="Versions of the compactions file.", no_args_is_help=True, rich_markup_mode=None)


def describe(compactions: "Compactions") -> tuple[dict[str, Any], list[tuple[str, object]]]:
    """Return a version as JSON, and as rows of a table."""
    from shale_cli.framework.output.to_json import to_json

    data: dict[str, Any] = to_json(compactions)
    return data, list(_rows(compactions))


def _rows(compactions: "Compactions") -> Iterator[tuple[str, object]]:
    yield "compactor_epoch", compactions.compactor_epoch
    for entry in compactions.entries:
        sources = [*(f"L0 {view}" for view in entry.spec.l0_view_ids), *(f"SR {run}" for run in entry.spec.sorted_runs)]
        destination = getattr(entry.spec, "destination", None)
        target = "nothing" if destination is None else f"SR {destination}"
        worker = f"  by {entry.worker.worker_id}" if entry.worker is not None else ""
        yield str(entry.id), f"{entry.status.name.lower()}  {', '.join(sources)} -> {target}{worker}"


def _store() -> "StoreClass[Compactions]":
    from shale.protocol.compactions_store import CompactionsStore

    return CompactionsStore


FILES = VersionedFiles(noun="compactions", store=_store, describe=describe)

add_version_commands(app, FILES, show_help="Show a version: every compaction with its sources, status and worker.")
