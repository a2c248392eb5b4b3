"""``shale compaction``: ask for compactions, watch them, cancel them."""

from typing import TYPE_CHECKING, Annotated

import typer

from shale_cli import compaction_simulate
from shale_cli.session import Session, complain, run

if TYPE_CHECKING:
    from shale.admin.admin import Admin
    from shale.compaction.requests import CompactionRequest
    from shale.compaction.status import CompactionInfo

app = typer.Typer(
    help="Compactions by hand: what a coordinator then schedules, and a worker does.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

compaction_simulate.register(app)

TEMPFAIL = 75
"""``wait --timeout``: not ended yet; docs/operations.md 12."""

Id = Annotated[str, typer.Argument(metavar="ID", help="The ULID of the compaction.")]
Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="ULIDs of compactions.")]


@app.command(
    epilog="Examples:  shale compaction submit --full --wait -u s3://bucket/db  |  "
    "shale compaction submit --sources SR3,SR2  |  shale compaction submit --request '\"Full\"' --dry-run"
)
def submit(
    context: typer.Context,
    *,
    full: Annotated[bool, typer.Option("--full", help="All runs of every tree, or of --segment.")] = False,
    sources: Annotated[str | None, typer.Option(help="Runs and L0s of one tree: SR3,SR2 or 01J…,SR3.")] = None,
    destination: Annotated[
        int | None, typer.Option(min=0, help="The run to write; by default it follows from the sources.")
    ] = None,
    segment: Annotated[str | None, typer.Option(help="The segment's prefix, in the key format.")] = None,
    drain: Annotated[bool, typer.Option("--drain", help="Remove the sources of --segment unread.")] = False,
    request: Annotated[str | None, typer.Option(help="The request as JSON (docs/operations.md 15).")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check and show; write nothing.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Stay until it has ended, like `compaction wait`.")] = False,
) -> None:
    """Submit compactions; one that would lose rows or cannot run is refused with the rule (exit 2)."""

    async def work(session: Session) -> int | None:
        from shale_cli.compaction_request import build_request

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
    """Show one compaction: phase, inputs and outputs, progress, attempts, and why it failed."""

    async def work(session: Session) -> None:
        await show_status(session, _one_id(compaction_id, id_))

    run(context, work)


@app.command("list", epilog="Example:  shale compaction list --all -u s3://bucket/db")
def list_(
    context: typer.Context,
    all_: Annotated[bool, typer.Option("--all", help="Also those that only older versions still tell of.")] = False,
) -> None:
    """List active compactions and the newest finished one."""

    async def work(session: Session) -> None:
        async with _admin(session) as admin:
            _show_all(session, await admin.compactions(all_retained=all_))

    run(context, work)


@app.command(epilog="Example:  shale compaction wait 01JD4ZC8M7S5X4T2Q3W1E0R9YB --timeout 2h -u s3://bucket/db")
def wait(context: typer.Context, compaction_ids: Ids) -> None:
    """Wait until compactions have ended: exit 0 completed, 4 failed, 3 unknown, 75 after --timeout."""

    async def work(session: Session) -> int:
        async with _admin(session) as admin:
            return await wait_for_all(session, admin, compaction_ids)

    run(context, work, timed_out=TEMPFAIL)


@app.command(epilog="Example:  shale compaction cancel 01JD4ZC8M7S5X4T2Q3W1E0R9YB -u s3://bucket/db")
def cancel(
    context: typer.Context,
    compaction_id: Id,
    confirm: Annotated[
        str, typer.Option(help="How long to watch for a coordinator that goes on, as SlateDB's does.")
    ] = "6s",
) -> None:
    """Cancel a waiting or running compaction; no row is touched.  Exit 4: too late, or the coordinator goes on."""

    async def work(session: Session) -> int:
        from shale.admin.compactions import CancelIgnored
        from shale.compaction.cancel import TooLateToCancel
        from shale.engine.settings_values import parse_duration_s
        from shale.service.exit_codes import ExitCode

        confirm_s = parse_duration_s(confirm, name="--confirm")
        async with _admin(session) as admin:
            try:
                info = await admin.cancel_compaction(compaction_id, confirm_s=confirm_s)
            except (CancelIgnored, TooLateToCancel) as error:
                complain(f"{session.location.url}: {error}")
                return ExitCode.NEGATIVE
        _show(session, info)
        return ExitCode.OK

    run(context, work)


async def submit_request(
    session: Session, request: "CompactionRequest", *, dry_run: bool = False, wait: bool = False
) -> int | None:
    """Submit, show what was submitted, and perhaps wait for it; returns the exit code."""
    async with _admin(session) as admin:
        submitted = await admin.submit_compaction(request, dry_run=dry_run)
        if not submitted:
            session.output.note("no tree has sorted runs: nothing to compact")
        elif dry_run:
            session.output.note("dry run: allowed; nothing was submitted")
        if dry_run or not wait:
            _show_all(session, submitted)
            return None
        return await wait_for_all(session, admin, [str(info.id) for info in submitted])


async def show_status(session: Session, compaction_id: str, file_id: int | None = None) -> None:
    """Print one compaction, as a version of the compactions file has it, or with all that is known now."""
    async with _admin(session) as admin:
        _show(session, await admin.compaction_status(compaction_id, file_id=file_id))


async def wait_for_all(session: Session, admin: "Admin", compaction_ids: list[str]) -> int:
    """Wait with progress on stderr; returns the exit code of the worst."""
    from shale.service.exit_codes import ExitCode
    from shale_cli.compaction_progress import wait_patiently, watching

    output = session.output
    with watching(output, session.env.clock) as on_progress:
        ended = [await wait_patiently(admin, each, on_progress, output) for each in compaction_ids]
    _show_all(session, ended)
    failed = [info for info in ended if info.error is not None]
    for info in failed:
        complain(f"compaction {info.id}: {info.error}")
    return ExitCode.NEGATIVE if failed else ExitCode.OK


def _admin(session: Session) -> "Admin":
    from shale.admin.admin import Admin

    return Admin(**session.place, env=session.env)


def _one_id(argument: str | None, option: str | None) -> str:
    from shale.errors import InvalidRequestError

    if (argument is None) == (option is None):
        raise InvalidRequestError("name one compaction: shale compaction status ID")
    return argument if argument is not None else str(option)


def _show(session: Session, info: "CompactionInfo") -> None:
    from shale.admin.compaction_json import compaction_json
    from shale_cli.compaction_rows import rows

    session.output.record(compaction_json(info), rows(info))


def _show_all(session: Session, infos: "list[CompactionInfo] | tuple[CompactionInfo, ...]") -> None:
    from shale_cli.compaction_rows import COLUMNS, item

    session.output.listing("compactions", [item(info, session.output) for info in infos], COLUMNS)
