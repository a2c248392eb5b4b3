"""``shale checkpoint``: states of a database that are kept (docs/checkpoints.md)."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from shale_cli.session import Session, complain, run

if TYPE_CHECKING:
    from shale.admin.admin import Admin
    from shale.types import Checkpoint

app = typer.Typer(
    help="States of a database that no collector takes anything from.", no_args_is_help=True, rich_markup_mode=None
)

COLUMNS = ("id", "manifest_id", "name", "create_time", "expire_time", "state")
_LIFETIME_HELP = 'How long from now on: "7days 30min 10s", also weeks, months, years.  Default: until it is deleted.'

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
        typer.Option("--source", "-s", help="Keep what this checkpoint (id or name) keeps; default: the newest state."),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", "-n", help="For people; need not be unique.")] = None,
    checkpoint_id: Annotated[
        str | None, typer.Option("--id", help="A UUID of your own: run again with it, and nothing is made twice.")
    ] = None,
) -> None:
    """Keep a state of the database.

    The newest state is what the manifest knows: rows that only the WAL has since the last flush are not in it.  The
    writer's own checkpoints (HTTP, Db.checkpoint) have them.
    """

    async def work(session: Session) -> None:
        async with _admin(session) as admin:
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
        str | None, typer.Option("--name", "-n", help="Only those of this name; '' for those without one.")
    ] = None,
) -> None:
    """List checkpoints in the order in which they were made, expired ones included."""

    async def work(session: Session) -> None:
        async with _admin(session) as admin:
            found = await admin.checkpoints.list(name)
        session.output.listing("checkpoints", [_json(session, each) for each in found], COLUMNS)

    run(context, work)


@app.command(epilog="Example:  shale checkpoint refresh 01740ee5-6459-44af-9a45-85deb6e468e3 -l 30d -u s3://bucket/db")
def refresh(context: typer.Context, checkpoint_id: Id, *, lifetime: Lifetime = None) -> None:
    """Let a checkpoint live for so long from now on."""
    _refresh(context, checkpoint_id, lifetime)


@app.command(epilog="Example:  shale checkpoint delete 01740ee5-6459-44af-9a45-85deb6e468e3 --yes -u s3://bucket/db")
def delete(
    context: typer.Context,
    checkpoint_id: Id,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; otherwise it is only told what would go.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would go, and ask nothing.")] = False,
) -> None:
    """Let go of a state: what it alone keeps can be collected then.  One that is not there is no error."""

    async def work(session: Session) -> None:
        from shale.errors import CheckpointMissing
        from shale_cli.danger import is_confirmed

        async with _admin(session) as admin:
            try:
                checkpoint = await admin.checkpoints.get(checkpoint_id)
            except CheckpointMissing as error:
                if isinstance(error.id, str):
                    raise  # a name that nobody has is a mistake, an id may have been deleted before
                session.output.record({"id": checkpoint_id, "deleted": False}, [("deleted", False)])
                return
            frees = await _frees(admin, checkpoint)
            what = f"let {frees['ssts']} SSTs with {frees['bytes']} bytes be collected"
            if frees["ssts"] is None:
                what = "let go of a version that cannot be read"
            confirmed = is_confirmed(session.output, _alias(session), yes=yes, dry_run=dry_run, what=what)
            deleted = confirmed and await admin.checkpoints.delete(checkpoint.id)
        data = _json(session, checkpoint) | {"deleted": deleted, "frees": frees}
        freed = "not known" if frees["ssts"] is None else f"{frees['ssts']} SSTs  {frees['bytes']} bytes"
        session.output.record(data, [*_rows(data), ("deleted", deleted), ("frees", freed)])

    run(context, work)


async def _frees(admin: "Admin", checkpoint: "Checkpoint") -> dict[str, int | None]:
    """What could be collected without it; not known where a version that some checkpoint keeps is damaged or gone."""
    from shale.errors import CheckpointMissing, CorruptionError

    try:
        kept = await admin.checkpoints.kept_alone(checkpoint.id)
    except CorruptionError as error:
        complain(f"what this frees is not known: {error}")
        return {"ssts": None, "bytes": None}
    except CheckpointMissing:  # somebody else has just deleted it
        return {"ssts": 0, "bytes": 0}
    return {"ssts": len(kept.ssts), "bytes": kept.size_bytes}


def refresh_by_flag(
    context: typer.Context,
    *,
    checkpoint_id: Annotated[str, typer.Option("--id", "-i", help="The checkpoint: its UUID, or its name.")],
    lifetime: Lifetime = None,
) -> None:
    """`shale checkpoint refresh ID`."""
    _refresh(context, checkpoint_id, lifetime)


def delete_by_flag(
    context: typer.Context,
    *,
    checkpoint_id: Annotated[str, typer.Option("--id", "-i", help="The checkpoint: its UUID, or its name.")],
) -> None:
    """`shale checkpoint delete ID --yes`."""

    async def work(session: Session) -> None:
        async with _admin(session) as admin:
            deleted = await admin.checkpoints.delete(checkpoint_id)
        session.output.record({"id": checkpoint_id, "deleted": deleted}, [("deleted", deleted)])

    run(context, work)


def _refresh(context: typer.Context, checkpoint_id: str, lifetime: str | None) -> None:
    async def work(session: Session) -> None:
        async with _admin(session) as admin:
            _show(session, await admin.checkpoints.refresh(checkpoint_id, lifetime))

    run(context, work)


def _admin(session: Session) -> "Admin":
    from shale.admin.admin import Admin

    return Admin(**session.place, env=session.env)


def _alias(session: Session) -> str:
    """What somebody types to confirm: the last part of the path."""
    return session.path.rpartition("/")[2]


def _show(session: Session, checkpoint: "Checkpoint") -> None:
    data = _json(session, checkpoint)
    session.output.record(data, _rows(data))


def _json(session: Session, checkpoint: "Checkpoint") -> dict[str, Any]:
    from shale.admin.checkpoint_json import checkpoint_json

    return checkpoint_json(checkpoint, session.env.clock.now_ms())


def _rows(data: dict[str, Any]) -> list[tuple[str, object]]:
    return [(name, data[name]) for name in COLUMNS]
