"""``shale gc run|plan``: collecting by hand; without a verb ``shale gc`` is the daemon."""

from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shale_cli.session import Session, run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from shale.admin.admin import Admin
    from shale.admin.garbage import OnProgress
    from shale.garbage.options import GcOptions, Task
    from shale.garbage.passes import Progress
    from shale.garbage.plan import GcPlan

app = typer.Typer(
    help="Delete what nobody can need any more; without a verb, the collector as a daemon.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Resources = Annotated[
    list[str] | None,
    typer.Option(
        "--resource",
        "-r",
        help="manifest, wal, wal_fence, compacted, compactions or detach; repeatable.  Default: all but wal_fence.",
    ),
]
NoBoundaries = Annotated[
    bool,
    typer.Option("--disable-boundary-files", help="For stores without conditional updates, then in every collector."),
]
MinAge = Annotated[str | None, typer.Option("--min-age", "-m", help="Younger objects stay; 5min, for fences 7days.")]


@app.command(epilog="Example:  shale gc plan -o json -u s3://bucket/orders > plan.json")
def plan(context: typer.Context, resource: Resources = None, min_age: MinAge = None) -> None:
    """Show every object that a pass would delete, with size and reason; nothing is written."""

    async def work(session: Session) -> None:
        async with _admin(session) as admin:
            with _progress(session, "planned") as on_progress:
                made = await admin.garbage.plan(resource, min_age=min_age, on_progress=on_progress)
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
    plan_file: Annotated[Path | None, typer.Option("--plan", help="Delete only what this saved plan names.")] = None,
    delete_grace: Annotated[
        str | None,
        typer.Option(help="A database that was destroyed longer ago than this goes as a whole, unless -r; 1day."),
    ] = None,
    disable_boundary_files: NoBoundaries = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete.  Without it this is a dry run.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would go.")] = False,
) -> None:
    """Collect once: a dry run until --yes.

    A saved plan is refused as a whole when something that it names is needed again.
    """

    async def work(session: Session) -> int | None:
        from shale.errors import InvalidRequestError
        from shale_cli.danger import is_confirmed

        if plan_file is not None and (resource is not None or min_age is not None):
            raise InvalidRequestError("a saved plan says which resources and ages: give either --plan or those")
        grace_s = _grace_s(delete_grace, is_whole=plan_file is None and resource is None)
        boundaries = not disable_boundary_files
        async with _admin(session) as admin:
            saved = None if plan_file is None else _read_plan(plan_file)
            if dry_run or not yes:
                shown = saved or await admin.garbage.plan(resource, min_age=min_age)
                _show_plan(session, shown)
                if grace_s is not None:
                    await _tell_doom(session, admin, grace_s)
                what = f"delete {len(shown.objects)} objects of {shown.size} bytes"
                if not is_confirmed(session.output, session.path, yes=yes, dry_run=dry_run, what=what):
                    return None
                saved = shown
            with _progress(session, "deleted") as on_progress:
                if saved is not None:
                    done = await admin.garbage.run(saved, boundary_files_enabled=boundaries, on_progress=on_progress)
                else:
                    options = _options(resource, min_age, boundaries=boundaries, grace_s=grace_s)
                    done = await admin.garbage.run_once(options, on_progress=on_progress)
        return _show_done(session, done)

    run(context, work)


def run_garbage_collection(
    context: typer.Context,
    *,
    resource: Annotated[str, typer.Option("--resource", "-r", help="What to collect.")],
    min_age: Annotated[str, typer.Option("--min-age", "-m", help="Younger objects stay.")],
    disable_boundary_files: NoBoundaries = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would go.")] = False,
) -> None:
    """`shale gc run --yes` of one resource."""

    async def work(session: Session) -> int | None:
        async with _admin(session) as admin:
            if dry_run:
                _show_plan(session, await admin.garbage.plan([resource], min_age=min_age))
                return None
            options = _options([resource], min_age, boundaries=not disable_boundary_files)
            return _show_done(session, await admin.garbage.run_once(options))

    run(context, work)


def _grace_s(text: str | None, *, is_whole: bool) -> float | None:
    """When a database goes as a whole; never in a run that is about some of its objects."""
    from shale.engine.settings_values import parse_duration_s
    from shale.errors import InvalidRequestError
    from shale.garbage.options import DELETE_GRACE_S

    if text is not None and not is_whole:
        raise InvalidRequestError("--delete-grace is about a whole database: give it without --resource and --plan")
    if not is_whole:
        return None
    return DELETE_GRACE_S if text is None else parse_duration_s(text, name="--delete-grace")


async def _tell_doom(session: Session, admin: "Admin", grace_s: float) -> None:
    """Say what else --yes would do."""
    from shale.garbage.soft_destroy import Doom

    if (await admin.garbage.doom(grace_s=grace_s)).doom is Doom.DUE:
        session.output.note(
            f"{session.path} was destroyed, and its grace is over: with --yes all of it goes; "
            "`shale db destroy --dry-run` shows what that is"
        )


def _options(
    resource: list[str] | None, min_age: str | None, *, boundaries: bool = True, grace_s: float | None = None
) -> "GcOptions":
    from shale.admin.garbage import tasks_of
    from shale.engine.settings_values import parse_duration_s
    from shale.garbage.options import options_for

    age_s = None if min_age is None else parse_duration_s(min_age)
    return options_for(
        dict.fromkeys(tasks_of(resource), age_s), boundary_files_enabled=boundaries, db_delete_grace_s=grace_s
    )


@asynccontextmanager
async def _admin(session: Session) -> "AsyncIterator[Admin]":
    from shale.admin.admin import Admin

    async with Admin(
        store=session.location.store_url,
        path=session.path,
        wal_store=session.wal_store,
        env=session.env,
        store_options=session.store_options,
    ) as admin:
        yield admin


@contextmanager
def _progress(session: Session, verb: str) -> "Iterator[OnProgress]":
    from shale_cli.progress import progress

    reached: dict[Task, int] = {}
    with progress(session.output, session.env.clock, verb, "objects") as tell:

        def on_progress(task: "Task", now: "Progress") -> None:
            reached[task] = now.planned if verb == "planned" else now.deleted
            tell(sum(reached.values()))

        yield on_progress


def _read_plan(file: Path) -> "GcPlan":
    import json

    from shale.errors import InvalidRequestError
    from shale.garbage.plan import GcPlan

    try:
        return GcPlan.from_json(json.loads(file.read_bytes()))
    except OSError as error:
        raise InvalidRequestError(f"{file}: {error.strerror}") from error
    except ValueError as error:
        raise InvalidRequestError(f"{file}: this is no JSON: {error}") from error


def _show_plan(session: Session, shown: "GcPlan") -> None:
    data = shown.as_json()
    if not session.output.is_table:
        del data["schema_version"]
        session.output.record(data, [])
        return
    session.output.listing("objects", data["objects"], ("resource", "size", "key", "reason"))
    session.output.note(f"{data['count']} objects, {data['size']} bytes; manifest {shown.manifest_id}")


def _show_done(session: Session, done: "Mapping[str, Progress]") -> int | None:
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
    return ExitCode.TEMPFAIL if any(each.failed for each in done.values()) else None
