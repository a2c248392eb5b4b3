"""``shale manifest``: versions of the manifest."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shale.admin.json_values import b64, rfc3339
from shale_cli.commands.version_commands import VersionedFiles, add_version_commands
from shale_cli.framework.session import CliSession, run

if TYPE_CHECKING:
    from shale.protocol.versioned import Versioned
    from shale.types import Manifest
    from shale_cli.commands.versions import StoreClass

app = typer.Typer(help="Versions of the manifest.", no_args_is_help=True, rich_markup_mode=None)


def describe(manifest: "Manifest") -> tuple[dict[str, Any], list[tuple[str, object]]]:
    """Return a version as JSON, and as rows of a table."""
    from shale_cli.framework.output.to_json import to_json

    data: dict[str, Any] = to_json(manifest)
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


def _store() -> "StoreClass[Manifest]":
    from shale.protocol.manifest_store import ManifestStore

    return ManifestStore


FILES = VersionedFiles(noun="manifest", store=_store, describe=describe)

add_version_commands(app, FILES, show_help="Show a version: trees, epochs, WAL position, checkpoints.")


@app.command(epilog="Examples:  shale manifest diff -u s3://bucket/db  |  shale manifest diff 40 47 -u s3://bucket/db")
def diff(
    context: typer.Context,
    old: Annotated[int | None, typer.Argument(metavar="OLD", help="A version; by default the one before NEW.")] = None,
    new: Annotated[int | None, typer.Argument(metavar="NEW", help="A version; the latest by default.")] = None,
) -> None:
    """Show the changes from one version to another: fields, L0s, runs, checkpoints."""

    async def work(session: CliSession) -> None:
        from shale.admin.manifest_diff import diff as differences

        before, after = await _two_versions(session, old, new)
        items = [
            {
                "change": change.kind,
                "what": change.what,
                "name": change.name,
                "segment_b64": b64(change.segment),
                "before": change.before,
                "after": change.after,
            }
            for change in differences(before.value, after.value)
        ]
        session.output.note(f"from version {before.id} to version {after.id}")
        session.output.listing("changes", items, ("change", "what", "name", "before", "after"))

    run(context, work)


async def _two_versions(
    session: CliSession, old: int | None, new: int | None
) -> "tuple[Versioned[Manifest], Versioned[Manifest]]":
    """Read both versions of a comparison.

    Raises:
        NotFoundError: a version does not exist.
    """
    from shale.errors import NotFoundError

    async with session.admin() as admin:
        after = await admin.states.manifest(new)
        if after is None:
            missing = "no manifest exists" if new is None else f"no version {new} of manifest is stored"
            raise NotFoundError(f"{session.location.url}: {missing}")
        before = await admin.states.manifest(after.id - 1 if old is None else old)
        if before is None:
            raise NotFoundError(f"{session.location.url}: no version {after.id - 1 if old is None else old} is stored")
    return before, after
