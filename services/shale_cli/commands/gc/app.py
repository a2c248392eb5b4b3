"""``shale gc run|plan``: manual gc passes; without a verb, ``shale gc`` is the daemon."""

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shale_cli.framework.session import CliSession, print_error, run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shale.admin.admin import Admin
    from shale.admin.gc import OnProgress
    from shale.gc.options import GcOptions, Task
    from shale.gc.passes import GcProgress
    from shale.gc.plan import GcPlan

app = typer.Typer(
    help="Delete unreferenced objects; without a verb, run the gc as a daemon.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Resources = Annotated[
    list[str] | None,
    typer.Option(
        "--resource",
        "-r",
        help="manifest, wal, wal_fence, compacted, compactions, detach or staged; repeatable.  "
        "Default: all but wal_fence.",
    ),
]
NoBoundaries = Annotated[
    bool,
    typer.Option("--disable-boundary-files", help="For stores without conditional updates; must be set in every gc."),
]
MinAge = Annotated[
    str | None, typer.Option("--min-age", "-m", help="Keep younger objects; default: 5min, fences 7days, staged 1day.")
]


@app.command(epilog="Example:  shale gc plan -o json -u s3://bucket/orders > plan.json")
def plan(context: typer.Context, resource: Resources = None, min_age: MinAge = None) -> None:
    """List every object that a pass would delete, with size and reason; nothing is written."""

    async def work(session: CliSession) -> None:
        async with session.admin() as admin:
            with _progress(session, "planned") as on_progress:
                made = await admin.gc.plan(resource, min_age=min_age, on_progress=on_progress)
        _show_plan(session, made)

    run(context, work)


@app.command(
    "run",
    epilog="Examples:  shale gc run --yes -u s3://bucket/orders  |  "
    "shale gc run --plan plan.json --yes -u s3://bucket/orders",
)
def run_(
    context: typer.Context,
    *,
    resource: Resources = None,
    min_age: MinAge = None,
    plan_file: Annotated[
        Path | None, typer.Option("--plan", help="Delete only the objects of this saved plan.")
    ] = None,
    delete_grace_period: Annotated[
        str | None,
        typer.Option(
            help="Also delete a database that was destroyed longer ago than this, unless -r is given; default: 1day."
        ),
    ] = None,
    disable_boundary_files: NoBoundaries = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete; without this option it is a dry run.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be deleted.")] = False,
) -> None:
    """Run one gc pass; a dry run without --yes.

    A saved plan is rejected as a whole if one of its objects is in use again.
    """

    async def work(session: CliSession) -> int | None:
        from shale.errors import InvalidRequestError
        from shale_cli.framework.confirmation import ask_confirmation

        if plan_file is not None and (resource is not None or min_age is not None):
            raise InvalidRequestError(
                "--plan cannot be used with --resource or --min-age: the saved plan contains them"
            )
        grace_s = _grace_s(delete_grace_period, is_whole=plan_file is None and resource is None)
        boundaries = not disable_boundary_files
        async with session.admin() as admin:
            saved = None if plan_file is None else _read_plan(plan_file)
            if dry_run or not yes:
                shown = saved or await admin.gc.plan(resource, min_age=min_age)
                _show_plan(session, shown)
                if grace_s is not None:
                    await _note_pending_deletion(session, admin, grace_s)
                what = f"delete {len(shown.objects)} objects of {shown.size} bytes"
                if not ask_confirmation(session.output, session.path, yes=yes, dry_run=dry_run, what=what):
                    return None
                saved = shown
            with _progress(session, "deleted") as on_progress:
                if saved is not None:
                    done = await admin.gc.run(saved, boundary_files_enabled=boundaries, on_progress=on_progress)
                else:
                    options = _options(resource, min_age, boundaries=boundaries, grace_s=grace_s)
                    done = await admin.gc.run_once(options, on_progress=on_progress)
        return _show_done(session, done)

    run(context, work)


def run_garbage_collection(
    context: typer.Context,
    *,
    resource: Annotated[str, typer.Option("--resource", "-r", help="The resource to collect.")],
    min_age: Annotated[str, typer.Option("--min-age", "-m", help="Keep younger objects.")],
    disable_boundary_files: NoBoundaries = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be deleted.")] = False,
) -> None:
    """`shale gc run --yes` of one resource."""

    async def work(session: CliSession) -> int | None:
        async with session.admin() as admin:
            if dry_run:
                _show_plan(session, await admin.gc.plan([resource], min_age=min_age))
                return None
            options = _options([resource], min_age, boundaries=not disable_boundary_files)
            return _show_done(session, await admin.gc.run_once(options))

    run(context, work)


def _grace_s(text: str | None, *, is_whole: bool) -> float | None:
    """Return the grace period of destroyed databases; ``None`` in a run for some resources only."""
    from shale.core.settings_values import parse_duration_s
    from shale.errors import InvalidRequestError
    from shale.gc.options import DELETE_GRACE_PERIOD_S

    if text is not None and not is_whole:
        raise InvalidRequestError("--delete-grace-period applies to whole databases: remove --resource and --plan")
    if not is_whole:
        return None
    return DELETE_GRACE_PERIOD_S if text is None else parse_duration_s(text, name="--delete-grace-period")


async def _note_pending_deletion(session: CliSession, admin: "Admin", grace_s: float) -> None:
    """Print a note if --yes would also delete the destroyed database."""
    from shale.gc.soft_destroy import DeletionPhase

    if (await admin.gc.deletion_status(grace_s=grace_s)).phase is DeletionPhase.DUE:
        session.output.note(
            f"{session.path} was destroyed, and its grace period is over: --yes deletes all of it; "
            "`shale db destroy --dry-run` lists the objects"
        )


def _options(
    resource: list[str] | None, min_age: str | None, *, boundaries: bool = True, grace_s: float | None = None
) -> "GcOptions":
    from shale.admin.gc import tasks_of
    from shale.core.settings_values import parse_duration_s
    from shale.gc.options import options_for

    age_s = None if min_age is None else parse_duration_s(min_age)
    return options_for(
        dict.fromkeys(tasks_of(resource), age_s), boundary_files_enabled=boundaries, delete_grace_period_s=grace_s
    )


@contextmanager
def _progress(session: CliSession, verb: str) -> "Iterator[OnProgress]":
    from shale_cli.framework.output.progress import progress

    reached: dict[Task, int] = {}
    with progress(session.output, session.env.clock, verb, "objects") as report:

        def on_progress(task: "Task", now: "GcProgress") -> None:
            reached[task] = now.planned if verb == "planned" else now.deleted
            report(sum(reached.values()))

        yield on_progress


def _read_plan(file: Path) -> "GcPlan":
    import json

    from shale.errors import InvalidRequestError
    from shale.gc.plan import GcPlan

    try:
        data = json.loads(file.read_bytes())
    except OSError as error:
        raise InvalidRequestError(f"{file}: {error.strerror}") from error
    except ValueError as error:
        raise InvalidRequestError(f"{file}: not JSON: {error}") from error
    return GcPlan.from_json(data)


def _show_plan(session: CliSession, shown: "GcPlan") -> None:
    data = shown.as_json()
    if not session.output.is_table:
        del data["schema_version"]
        session.output.record(data, [])
        return
    session.output.listing("objects", data["objects"], ("resource", "size", "key", "reason"))
    session.output.note(f"{data['count']} objects, {data['size']} bytes; manifest {shown.manifest_id}")


def _show_done(session: CliSession, done: "Mapping[str, GcProgress]") -> int | None:
    from shale.errors import AccessDenied
    from shale.service.exit_codes import ExitCode

    items = [
        {
            "resource": str(resource),
            "listed": each.listed,
            "planned": each.planned,
            "deleted": each.deleted,
            "deleted_bytes": each.deleted_bytes,
            "failed": each.failed,
        }
        for resource, each in done.items()
    ]
    session.output.listing("resources", items, ("resource", "listed", "planned", "deleted", "deleted_bytes", "failed"))
    problem = next((each.problem for each in done.values() if each.problem is not None), None)
    if problem is None:
        return None
    print_error(f"not all objects were deleted: {problem}")
    return ExitCode.NOPERM if isinstance(problem, AccessDenied) else ExitCode.TEMPFAIL
