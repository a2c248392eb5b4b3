"""``shale encryption``: the keys of a database (docs/how-to/rotate-keys.md)."""

from typing import TYPE_CHECKING, Annotated

import typer

from shale_cli.framework.session import CliSession, print_error, run

if TYPE_CHECKING:
    from shale.admin.encryption import EncryptionStatus

app = typer.Typer(help="Keys: which are needed, and their replacement.", no_args_is_help=True, rich_markup_mode=None)

COLUMNS = ("key", "writes", "needed", "ssts", "bytes", "borrowed", "wal_files", "checkpoints")


@app.callback()
def _nouns() -> None:
    """Keys: which are needed, and their replacement."""


@app.command(epilog="Example:  shale encryption status --config shale.toml -u s3://bucket/db")
def status(context: typer.Context) -> None:
    """List the keys that the database needs, and what for; reads the first bytes of each SST and WAL file."""

    async def work(session: CliSession) -> None:
        async with session.admin() as admin:
            _show(session, await admin.encryption.status())

    run(context, work)


@app.command(epilog="Example:  shale encryption rotate --config shale.toml -u s3://bucket/db")
def rotate(
    context: typer.Context,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Validate the compactions, and submit none.")] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not wait until the compactions have ended.")] = False,
) -> None:
    """Rewrite SSTs of older keys with the first key of the key file, by compactions; exit 4 if one is still needed.

    First give all processes the new key as the first one, and restart them.  Repeat the command, for example after
    checkpoints have expired, until it exits with 0: then the older keys are needed no more.
    """

    async def work(session: CliSession) -> int:
        from shale.service.exit_codes import ExitCode
        from shale_cli.commands.compaction.progress import show_progress

        async with session.admin() as admin:
            with show_progress(session.output, session.env.clock) as on_progress:
                found = await admin.encryption.rotate(wait=not no_wait, dry_run=dry_run, on_progress=on_progress)
        _show(session, found)
        for use in found.outdated:
            print_error(f"{f'key {use.key}' if use.key else 'no key'} is still needed")
        return ExitCode.NEGATIVE if found.outdated else ExitCode.OK

    run(context, work)


def _show(session: CliSession, found: "EncryptionStatus") -> None:
    items = [
        {
            "key": use.key or None,
            "writes": use.key == found.write_key,
            "needed": use.is_needed,
            "ssts": use.ssts,
            "bytes": use.size,
            "borrowed": use.borrowed,
            "wal_files": use.wal_files,
            "checkpoints": sorted(use.checkpoints),
        }
        for use in found.uses
    ]
    session.output.listing("keys", items, COLUMNS)
