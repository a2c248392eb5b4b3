"""``shale backup``: copies of a database in another store (docs/how-to/backup-and-restore.md)."""

from typing import TYPE_CHECKING, Annotated

import typer

from shale_cli.framework.session import CliSession, print_error, run

if TYPE_CHECKING:
    from shale.admin.admin import Admin
    from shale.admin.backups import BackupAdmin

app = typer.Typer(
    help="Backups: copies of a database in another bucket or at another provider.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Backups = Annotated[
    str | None,
    typer.Option("--backups", help="URL of the place of the backups; default: the setting backup.url.", metavar="URL"),
]
Concurrency = Annotated[int, typer.Option(min=1, help="Objects that are copied or read concurrently.")]
BackupId = Annotated[str | None, typer.Argument(help="Id of the backup; default: the newest one.", metavar="[ID]")]
CONCURRENCY = 4


def backups_at(session: CliSession, admin: "Admin", url: str | None) -> "BackupAdmin":
    """Return the backups that the command line or the settings name.

    Raises:
        InvalidRequestError: neither does.
    """
    from shale.errors import InvalidRequestError

    where = url if url is not None else session.backups_url
    if where is None:
        raise InvalidRequestError("name the place of the backups: --backups URL, or the setting backup.url")
    return admin.backups(where, store_options=session.backup_store_options)


@app.command(epilog="Example:  shale backup create --backups s3://backups/orders -u s3://bucket/orders")
def create(
    context: typer.Context,
    *,
    backups: Backups = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="Copy the state of this checkpoint (id or name); default: the newest one.")
    ] = None,
    keep_wal: Annotated[
        bool,
        typer.Option("--keep-wal", help="Copy all WAL files since the last backup, for restores --to-seq in between."),
    ] = False,
    concurrency: Concurrency = CONCURRENCY,
    no_resume: Annotated[
        bool, typer.Option("--no-resume", help="Start a new backup, also if one was interrupted.")
    ] = False,
) -> None:
    """Copy the durable rows of a database, which may be in use; after an interruption, run it again.

    Only objects that the place does not have are copied.  A backup is visible when it is complete.
    """

    async def work(session: CliSession) -> None:
        from shale_cli.commands.backup.shown import backup_fields, backup_rows, copy_progress

        async with session.admin() as admin:
            place = backups_at(session, admin, backups)
            with copy_progress(session, "copied") as on_progress:
                made = await place.create(
                    checkpoint=checkpoint,
                    keep_wal=keep_wal,
                    concurrency=concurrency,
                    resume=not no_resume,
                    on_progress=on_progress,
                )
        data = backup_fields(made)
        session.output.record(data, backup_rows(data))

    run(context, work)


@app.command("list", epilog="Example:  shale backup list --backups s3://backups/orders -u s3://bucket/orders")
def list_(context: typer.Context, *, backups: Backups = None) -> None:
    """List the backups, oldest first, and those that were not completed."""

    async def work(session: CliSession) -> None:
        from shale_cli.commands.backup.shown import LIST_COLUMNS, backup_fields, unfinished_fields

        async with session.admin() as admin:
            place = backups_at(session, admin, backups)
            unfinished = await place.unfinished()
            complete = await place.list()
        done = {each.id for each in complete}
        items = [backup_fields(each) for each in complete]
        items += [unfinished_fields(each) for each in unfinished if each.plan_id not in done]
        session.output.listing("backups", items, LIST_COLUMNS)

    run(context, work)


@app.command(
    epilog="Examples:  shale backup restore --backups s3://backups/orders -u s3://bucket/orders-restored  |  "
    "shale backup restore --to-seq 120045 --backups s3://backups/orders -u s3://bucket/orders-restored"
)
def restore(
    context: typer.Context,
    backup_id: BackupId = None,
    *,
    backups: Backups = None,
    to_seq: Annotated[
        int | None,
        typer.Option("--to-seq", min=0, help="Restore rows up to this sequence number, with kept WAL files."),
    ] = None,
    in_place: Annotated[
        bool,
        typer.Option("--in-place", help="Replace the database at --url; needs --yes.  Stop its processes first."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Replace the database without a question.")] = False,
    concurrency: Concurrency = CONCURRENCY,
) -> None:
    """Restore a backup as the database at --url; after an interruption, run it again.

    The path must be empty, unless --in-place is given: then the state before is kept by a checkpoint for a week.
    """

    async def work(session: CliSession) -> int:
        from shale.service.exit_codes import ExitCode
        from shale_cli.commands.backup.shown import copy_progress, restore_fields
        from shale_cli.framework.confirmation import ask_confirmation

        if in_place and not ask_confirmation(
            session.output, session.path, yes=yes, dry_run=False, what=f"replace the database {session.location.url}"
        ):
            return ExitCode.NEGATIVE
        async with session.admin() as admin:
            place = backups_at(session, admin, backups)
            with copy_progress(session, "restored") as on_progress:
                done = await place.restore(
                    backup_id, to_seq=to_seq, in_place=in_place, concurrency=concurrency, on_progress=on_progress
                )
        data = restore_fields(done)
        session.output.record(data, list(data.items()))
        return ExitCode.OK

    run(context, work)


@app.command(
    epilog="Examples:  shale backup verify --backups s3://backups/orders -u s3://bucket/orders  |  "
    "shale backup verify --deep --backups s3://backups/orders -u s3://bucket/orders"
)
def verify(
    context: typer.Context,
    backup_id: BackupId = None,
    *,
    backups: Backups = None,
    quick: Annotated[bool, typer.Option("--quick", help="Compare sizes only, and read no object.")] = False,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also open it as a database and decode every row; needs its keys.")
    ] = False,
    concurrency: Concurrency = CONCURRENCY,
) -> None:
    """Verify that a backup can be restored; exit 4 if there are findings.  Nothing is written."""

    async def work(session: CliSession) -> int:
        from shale.service.exit_codes import ExitCode
        from shale_cli.commands.backup.shown import copy_progress, show_report

        async with session.admin() as admin:
            place = backups_at(session, admin, backups)
            with copy_progress(session, "checked") as on_progress:
                report = await place.verify(
                    backup_id, quick=quick, deep=deep, concurrency=concurrency, on_progress=on_progress
                )
        show_report(session.output, report)
        if report.is_sound:
            return ExitCode.OK
        print_error(f"backup {report.backup.id}: {len(report.findings)} findings")
        return ExitCode.NEGATIVE

    run(context, work)


@app.command(
    epilog="Examples:  shale backup prune --keep 7 --backups s3://backups/orders -u s3://bucket/orders  |  "
    "shale backup prune --older-than 30d --yes --backups s3://backups/orders -u s3://bucket/orders"
)
def prune(
    context: typer.Context,
    *,
    backups: Backups = None,
    keep: Annotated[
        int | None, typer.Option(min=0, help="Keep this many of the newest backups of each database.")
    ] = None,
    older_than: Annotated[str | None, typer.Option(help="Only remove backups that began longer ago, 30d.")] = None,
    abandoned_after: Annotated[
        str | None, typer.Option(help="Also remove interrupted backups that began longer ago.")
    ] = None,
    break_lock: Annotated[
        bool, typer.Option("--break-lock", help="Remove the lock of a prune that was killed.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete; without this option it is a dry run.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be deleted.")] = False,
) -> None:
    """Remove old backups, and the copies that no other backup needs; a dry run without --yes."""

    async def work(session: CliSession) -> None:
        from shale_cli.commands.backup.shown import prune_fields, prune_rows
        from shale_cli.framework.confirmation import ask_confirmation
        from shale_cli.framework.output.progress import progress

        rules = {"keep": keep, "older_than": older_than, "abandoned_after": abandoned_after}
        async with session.admin() as admin:
            place = backups_at(session, admin, backups)
            plan = await place.plan_prune(**rules)  # type: ignore[arg-type]
            what = f"remove {len(plan.removed)} backups and {len(plan.objects)} objects of {plan.size} bytes"
            confirmed = ask_confirmation(session.output, session.path, yes=yes, dry_run=dry_run, what=what)
            if confirmed:
                with progress(session.output, session.env.clock, "deleted", "objects") as on_deleted:
                    plan = await place.prune(**rules, break_lock=break_lock, on_deleted=on_deleted)  # type: ignore[arg-type]
        data = prune_fields(plan, is_done=confirmed)
        session.output.record(data, prune_rows(data))

    run(context, work)
