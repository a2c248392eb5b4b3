"""``shale compaction``: submits, watches and cancels compactions."""

from typing import TYPE_CHECKING, Annotated

import typer

from shale_cli.commands.compaction import simulate
from shale_cli.framework.session import CliSession, print_error, run

if TYPE_CHECKING:
    from shale.admin.admin import Admin
    from shale.compaction.requests import CompactionRequest
    from shale.compaction.status import CompactionInfo

app = typer.Typer(
    help="Manual compactions: a coordinator schedules them, and a worker executes them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

simulate.register(app)

TEMPFAIL = 75
"""The exit code of ``wait --timeout`` for a compaction that has not ended (docs/reference/exit-codes.md)."""

Id = Annotated[str, typer.Argument(metavar="ID", help="The ULID of the compaction.")]
Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="ULIDs of compactions.")]


@app.command(
    epilog="Examples:  shale compaction submit --full --wait -u s3://bucket/db  |  "
    "shale compaction submit --sources SR3,SR2  |  shale compaction submit --request '\"Full\"' --dry-run"
)
def submit(
    context: typer.Context,
    *,
    full: Annotated[bool, typer.Option("--full", help="Compact all runs of every tree, or of --segment.")] = False,
    sources: Annotated[str | None, typer.Option(help="Runs and L0s of one tree: SR3,SR2 or 01J…,SR3.")] = None,
    destination: Annotated[
        int | None, typer.Option(min=0, help="The id of the run to write; by default derived from the sources.")
    ] = None,
    segment: Annotated[str | None, typer.Option(help="The segment's prefix, in the key format.")] = None,
    drain: Annotated[
        bool, typer.Option("--drain", help="Remove the sources of --segment without reading them.")
    ] = False,
    request: Annotated[str | None, typer.Option(help="The request as JSON (docs/how-to/compact-manually.md).")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check and print the request; write nothing.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it has ended, like `compaction wait`.")] = False,
) -> None:
    """Submit compactions.  A request that would lose rows or cannot run is rejected with the rule (exit 2)."""

    async def work(session: CliSession) -> int | None:
        from shale_cli.commands.compaction.request import build_request

        chosen = build_request(
            session.output,
            full=full,
            sources=sources,
            destination=destination,
            segment=segment,
            drain=drain,
            request=request,
        )
        return await submit_request(session, chosen, dry_run=dry_run, wait=wait)

    run(context, work, timed_out=TEMPFAIL)


@app.command(epilog="Example:  shale compaction status 01JD4ZC8M7S5X4T2Q3W1E0R9YB -u s3://bucket/db")
def status(
    context: typer.Context,
    compaction_id: Annotated[str | None, typer.Argument(metavar="ID", help="The ULID of the compaction.")] = None,
    id_: Annotated[str | None, typer.Option("--id", hidden=True)] = None,
) -> None:
    """Show one compaction: phase, inputs and outputs, progress, attempts, error."""

    async def work(session: CliSession) -> None:
        await show_status(session, _one_id(compaction_id, id_))

    run(context, work)


@app.command("list", epilog="Example:  shale compaction list --all -u s3://bucket/db")
def list_(
    context: typer.Context,
    all_: Annotated[
        bool, typer.Option("--all", help="Also compactions that only older versions, or records, tell.")
    ] = False,
) -> None:
    """List active compactions and the latest finished one."""

    async def work(session: CliSession) -> None:
        async with session.admin() as admin:
            _show_all(session, await admin.compactions(all_retained=all_))

    run(context, work)


@app.command(epilog="Example:  shale compaction wait 01JD4ZC8M7S5X4T2Q3W1E0R9YB --timeout 2h -u s3://bucket/db")
def wait(context: typer.Context, compaction_ids: Ids) -> None:
    """Wait until compactions have ended: exit 0 completed, 4 failed, 3 unknown, 75 after --timeout."""

    async def work(session: CliSession) -> int:
        async with session.admin() as admin:
            return await wait_for_all(session, admin, compaction_ids)

    run(context, work, timed_out=TEMPFAIL)


@app.command(epilog="Example:  shale compaction cancel 01JD4ZC8M7S5X4T2Q3W1E0R9YB -u s3://bucket/db")
def cancel(
    context: typer.Context,
    compaction_id: Id,
    confirm: Annotated[
        str, typer.Option(help="How long to check that the coordinator stops; SlateDB's coordinator continues.")
    ] = "6s",
) -> None:
    """Cancel a waiting or running compaction; no row changes.  Exit 4: too late, or the coordinator continues."""

    async def work(session: CliSession) -> int:
        from shale.admin.compactions import CancelIgnored
        from shale.compaction.cancel import TooLateToCancel
        from shale.core.settings_values import parse_duration_s
        from shale.service.exit_codes import ExitCode

        confirm_s = parse_duration_s(confirm, name="--confirm")
        async with session.admin() as admin:
            try:
                info = await admin.cancel_compaction(compaction_id, confirm_s=confirm_s)
            except (CancelIgnored, TooLateToCancel) as error:
                print_error(f"{session.location.url}: {error}")
                return ExitCode.NEGATIVE
        _show(session, info)
        return ExitCode.OK

    run(context, work)


@app.command(epilog="Example:  shale compaction retry 01JD4ZC8M7S5X4T2Q3W1E0R9YB --wait -u s3://bucket/db")
def retry(
    context: typer.Context,
    compaction_id: Id,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it has ended, like `compaction wait`.")] = False,
) -> None:
    """Submit a failed compaction again, under a new id.  Exit 4: it has not failed."""

    async def work(session: CliSession) -> int:
        from shale.admin.compactions import NotFailed
        from shale.service.exit_codes import ExitCode

        async with session.admin() as admin:
            try:
                info = await admin.retry_compaction(compaction_id)
            except NotFailed as error:
                print_error(f"{session.location.url}: {error}")
                return ExitCode.NEGATIVE
            if wait:
                return await wait_for_all(session, admin, [str(info.id)])
        _show(session, info)
        return ExitCode.OK

    run(context, work, timed_out=TEMPFAIL)


async def submit_request(
    session: CliSession, request: "CompactionRequest", *, dry_run: bool = False, wait: bool = False
) -> int | None:
    """Submit a request, print the compactions and optionally wait for them; return the exit code."""
    async with session.admin() as admin:
        submitted = await admin.submit_compaction(request, dry_run=dry_run)
        if not submitted:
            session.output.note("no tree has sorted runs: nothing to compact")
        elif dry_run:
            session.output.note("dry run: allowed; nothing was submitted")
        if dry_run or not wait:
            _show_all(session, submitted)
            return None
        return await wait_for_all(session, admin, [str(info.id) for info in submitted])


async def show_status(session: CliSession, compaction_id: str, file_id: int | None = None) -> None:
    """Print one compaction from a version of the compactions file, or with its latest state."""
    async with session.admin() as admin:
        _show(session, await admin.compaction_status(compaction_id, file_id=file_id))


async def wait_for_all(session: CliSession, admin: "Admin", compaction_ids: list[str]) -> int:
    """Wait with progress on stderr; return the worst exit code."""
    from shale.service.exit_codes import ExitCode
    from shale_cli.commands.compaction.progress import show_progress, wait_through_outages

    output = session.output
    with show_progress(output, session.env.clock) as on_progress:
        ended = [await wait_through_outages(admin, each, on_progress, output) for each in compaction_ids]
    _show_all(session, ended)
    failed = [info for info in ended if info.error is not None]
    for info in failed:
        print_error(f"compaction {info.id}: {info.error}")
    return ExitCode.NEGATIVE if failed else ExitCode.OK


def _one_id(argument: str | None, option: str | None) -> str:
    from shale.errors import InvalidRequestError

    if (argument is None) == (option is None):
        raise InvalidRequestError("name one compaction: shale compaction status ID")
    return argument if argument is not None else str(option)


def _show(session: CliSession, info: "CompactionInfo") -> None:
    from shale.admin.json_values import compaction_json
    from shale_cli.commands.compaction.rows import rows

    session.output.record(compaction_json(info), rows(info))


def _show_all(session: CliSession, infos: "list[CompactionInfo] | tuple[CompactionInfo, ...]") -> None:
    from shale_cli.commands.compaction.rows import COLUMNS, item

    session.output.listing("compactions", [item(info, session.output) for info in infos], COLUMNS)
