"""``shale checkpoint``: creates, lists and deletes checkpoints (docs/how-to/checkpoints.md)."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from shale_cli.framework.session import CliSession, print_error, run

if TYPE_CHECKING:
    from shale.admin.admin import Admin
    from shale.types import Checkpoint

app = typer.Typer(
    help="Checkpoints: states of a database that are protected from garbage collection.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

COLUMNS = ("id", "manifest_id", "name", "create_time", "expire_time", "state")
_LIFETIME_HELP = 'Lifetime from now: "7days 30min 10s", also weeks, months, years.  Default: no expiry.'

Lifetime = Annotated[str | None, typer.Option("--lifetime", "-l", help=_LIFETIME_HELP)]
Id = Annotated[str, typer.Argument(metavar="ID", help="The checkpoint: its UUID, or its name.")]


@app.command(
    epilog="Examples:  shale checkpoint create -n nightly -l 7days -u s3://bucket/db  |  "
    "shale checkpoint create -s 01740ee5-6459-44af-9a45-85deb6e468e3 -u s3://bucket/db"
)
def create(
    context: typer.Context,
    *,
    lifetime: Lifetime = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--source", "-s", help="Id or name of a checkpoint whose state to keep; default: the latest state."
        ),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", "-n", help="A label; need not be unique.")] = None,
    checkpoint_id: Annotated[
        str | None, typer.Option("--id", help="The UUID of the new checkpoint; makes a retry idempotent.")
    ] = None,
) -> None:
    """Create a checkpoint.

    The latest state is that of the latest manifest: rows that are only in the WAL are not part of it.  Checkpoints
    that the writer creates (HTTP, Db.checkpoint) include them.
    """

    async def work(session: CliSession) -> None:
        async with session.admin() as admin:
            _show(session, await admin.checkpoints.create(lifetime, source, name, checkpoint_id=checkpoint_id))

    run(context, work)


@app.command(
    "list",
    epilog="Examples:  shale checkpoint list -u s3://bucket/db  |  shale checkpoint list -n nightly -u s3://bucket/db",
)
def list_(
    context: typer.Context,
    *,
    name: Annotated[
        str | None, typer.Option("--name", "-n", help="Only checkpoints with this name; '': without a name.")
    ] = None,
) -> None:
    """List checkpoints in order of creation, including expired ones."""

    async def work(session: CliSession) -> None:
        async with session.admin() as admin:
            found = await admin.checkpoints.list(name)
        session.output.listing("checkpoints", [_json(session, each) for each in found], COLUMNS)

    run(context, work)


@app.command(epilog="Example:  shale checkpoint refresh 01740ee5-6459-44af-9a45-85deb6e468e3 -l 30d -u s3://bucket/db")
def refresh(context: typer.Context, checkpoint_id: Id, *, lifetime: Lifetime = None) -> None:
    """Set the lifetime of a checkpoint, counted from now."""
    _refresh(context, checkpoint_id, lifetime)


@app.command(epilog="Example:  shale checkpoint delete 01740ee5-6459-44af-9a45-85deb6e468e3 --yes -u s3://bucket/db")
def delete(
    context: typer.Context,
    checkpoint_id: Id,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Delete it; without this option, only print the effect.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the effect without asking for confirmation.")
    ] = False,
) -> None:
    """Delete a checkpoint, so that objects that only it protects can be deleted.  A missing id is not an error."""

    async def work(session: CliSession) -> None:
        from shale.errors import CheckpointMissing
        from shale_cli.framework.confirmation import ask_confirmation

        async with session.admin() as admin:
            try:
                checkpoint = await admin.checkpoints.get(checkpoint_id)
            except CheckpointMissing as error:
                if isinstance(error.id, str):
                    raise  # an unknown name is an error; an id may have been deleted before
                session.output.record({"id": checkpoint_id, "deleted": False}, [("deleted", False)])
                return
            frees = await _frees(admin, checkpoint)
            what = f"allow deletion of {frees['ssts']} SSTs with {frees['bytes']} bytes"
            if frees["ssts"] is None:
                what = "unprotect a version that cannot be read"
            confirmed = ask_confirmation(session.output, _alias(session), yes=yes, dry_run=dry_run, what=what)
            deleted = confirmed and await admin.checkpoints.delete(checkpoint.id)
        data = _json(session, checkpoint) | {"deleted": deleted, "frees": frees}
        freed = "unknown" if frees["ssts"] is None else f"{frees['ssts']} SSTs  {frees['bytes']} bytes"
        session.output.record(data, [*_rows(data), ("deleted", deleted), ("frees", freed)])

    run(context, work)


async def _frees(admin: "Admin", checkpoint: "Checkpoint") -> dict[str, int | None]:
    """Return what the deletion frees; ``None`` if a version that some checkpoint keeps is damaged or missing."""
    from shale.errors import CheckpointMissing, CorruptionError

    try:
        kept = await admin.checkpoints.exclusive_ssts(checkpoint.id)
    except CorruptionError as error:
        print_error(f"cannot tell what the deletion frees: {error}")
        return {"ssts": None, "bytes": None}
    except CheckpointMissing:  # another process has just deleted it
        return {"ssts": 0, "bytes": 0}
    return {"ssts": len(kept.ssts), "bytes": kept.size_bytes}


def refresh_with_flags(
    context: typer.Context,
    *,
    checkpoint_id: Annotated[str, typer.Option("--id", "-i", help="The checkpoint: its UUID, or its name.")],
    lifetime: Lifetime = None,
) -> None:
    """`shale checkpoint refresh ID`."""
    _refresh(context, checkpoint_id, lifetime)


def delete_with_flags(
    context: typer.Context,
    *,
    checkpoint_id: Annotated[str, typer.Option("--id", "-i", help="The checkpoint: its UUID, or its name.")],
) -> None:
    """`shale checkpoint delete ID --yes`."""

    async def work(session: CliSession) -> None:
        async with session.admin() as admin:
            deleted = await admin.checkpoints.delete(checkpoint_id)
        session.output.record({"id": checkpoint_id, "deleted": deleted}, [("deleted", deleted)])

    run(context, work)


def _refresh(context: typer.Context, checkpoint_id: str, lifetime: str | None) -> None:
    async def work(session: CliSession) -> None:
        async with session.admin() as admin:
            _show(session, await admin.checkpoints.refresh(checkpoint_id, lifetime))

    run(context, work)


def _alias(session: CliSession) -> str:
    """Return the name to type for confirmation: the last part of the path."""
    return session.path.rpartition("/")[2]


def _show(session: CliSession, checkpoint: "Checkpoint") -> None:
    data = _json(session, checkpoint)
    session.output.record(data, _rows(data))


def _json(session: CliSession, checkpoint: "Checkpoint") -> dict[str, Any]:
    from shale.admin.json_values import checkpoint_json

    return checkpoint_json(checkpoint, session.env.clock.now_ms())


def _rows(data: dict[str, Any]) -> list[tuple[str, object]]:
    return [(name, data[name]) for name in COLUMNS]
