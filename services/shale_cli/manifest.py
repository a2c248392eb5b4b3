"""``shale manifest``: what a database consists of."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shale.admin.json_values import rfc3339
from shale_cli.session import Session, run

if TYPE_CHECKING:
    from shale.types import Manifest

app = typer.Typer(help="Versions of the manifest.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_(context: typer.Context) -> None:
    """List the stored versions, oldest first."""

    async def work(session: Session) -> None:
        from shale.protocol.manifest_store import ManifestStore
        from shale_cli.versions import list_versions

        await list_versions(session, "manifest", ManifestStore)

    run(context, work)


@app.command()
def show(
    context: typer.Context,
    manifest_id: Annotated[int | None, typer.Argument(metavar="[ID]", help="A version; the latest by default.")] = None,
) -> None:
    """Show a version: trees, epochs, WAL position, checkpoints."""

    async def work(session: Session) -> None:
        from shale.protocol.manifest_store import ManifestStore
        from shale_cli.versions import show_version

        await show_version(session, "manifest", ManifestStore, manifest_id, _describe)

    run(context, work)


def _describe(manifest: "Manifest") -> tuple[dict[str, Any], list[tuple[str, object]]]:
    from shale_cli.plain import plain

    data: dict[str, Any] = plain(manifest)
    return data, list(_rows(manifest))


def _rows(manifest: "Manifest") -> Iterator[tuple[str, object]]:
    yield "initialized", manifest.initialized
    yield "writer_epoch", manifest.writer_epoch
    yield "compactor_epoch", manifest.compactor_epoch
    yield "replay_after_wal_id", manifest.replay_after_wal_id
    yield "next_wal_sst_id", manifest.next_wal_sst_id
    yield "last_l0_seq", manifest.last_l0_seq
    for prefix, tree in manifest.trees():
        where = f" of {prefix!r}" if prefix else ""
        for view in tree.l0:
            yield f"l0{where}", f"{view.id}  {view.sst.estimated_size_bytes} bytes"
        for run_ in tree.compacted:
            yield f"run {run_.id}{where}", f"{len(run_.ssts)} SSTs  {run_.estimated_size_bytes} bytes"
    for checkpoint in manifest.checkpoints:
        expires = rfc3339(checkpoint.expire_s * 1000) if checkpoint.expire_s else "never"
        yield "checkpoint", f"{checkpoint.id}  manifest {checkpoint.manifest_id}  expires {expires}"
    for external in manifest.external_dbs:
        yield "external_db", f"{external.path}  {len(external.sst_ids)} SSTs"
