"""``shale db destroy``, and its flat names ``delete-db`` and ``destroy``: deletes a database."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from shale_cli.framework.session import CliSession, print_error, run

if TYPE_CHECKING:
    from shale.admin.admin import Admin
    from shale.admin.destroy import DestroyResult

Soft = Annotated[bool, typer.Option("--soft", help="Mark it; the gc deletes it after the grace period.")]
Hard = Annotated[bool, typer.Option("--hard", help="Delete it now (default).")]
Force = Annotated[
    bool, typer.Option("--force", help="Ignore live checkpoints and objects that do not belong to the database.")
]
Confirm = Annotated[bool, typer.Option("--confirm", help="Perform the deletion; without this option it is a dry run.")]

COLUMNS = ("namespace", "objects", "bytes")


def destroy(
    context: typer.Context,
    *,
    soft: Soft = False,
    hard: Hard = False,
    force: Force = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Perform the deletion; without this option it is a dry run.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the objects that would be deleted.")] = False,
) -> None:
    """Delete a database permanently; a dry run without --yes.

    Stop its writers, compactors and gc first.  After an interruption, run the command again.  Do not
    reuse the path while a process of the old database may still run.
    """

    async def work(session: CliSession) -> None:
        from shale_cli.framework.confirmation import ask_confirmation

        mode = _mode(soft=soft, hard=hard)
        async with session.admin() as admin:
            result = await admin.destroy(mode, force=force)
            obstacles = () if force else result.plan.obstacles()
            if not yes or dry_run:
                _show(session, result, objects=dry_run or not session.output.is_table)
                for obstacle in obstacles:
                    print_error(f"{'would wait' if mode == 'soft' else 'would be refused'}: {obstacle}")
            what = f"delete {len(result.plan.objects)} objects of {result.plan.size} bytes"
            what = what if mode == "hard" else f"mark a database, and {what} after the grace period"
            if obstacles and not yes and mode == "hard":
                return
            if not ask_confirmation(session.output, session.path, yes=yes, dry_run=dry_run, what=what):
                return
            _show(session, await _execute(session, admin, mode, result, force=force), objects=False)

    run(context, work)


def delete_db(context: typer.Context, *, confirm: Confirm = False) -> None:
    """`shale db destroy --hard`."""
    _at_once(context, "hard", confirm=confirm, force=False)


def destroy_with_flags(
    context: typer.Context,
    *,
    soft: Soft = False,
    hard: Hard = False,
    confirm: Confirm = False,
    force: Force = False,
) -> None:
    """`shale db destroy`."""
    _at_once(context, _mode(soft=soft, hard=hard), confirm=confirm, force=force)


def _at_once(context: typer.Context, mode: str, *, confirm: bool, force: bool) -> None:
    async def work(session: CliSession) -> None:
        async with session.admin() as admin:
            result = await admin.destroy(mode, force=force)
            if confirm:
                result = await _execute(session, admin, mode, result, force=force)
        _show(session, result, objects=not confirm)

    run(context, work)


async def _execute(
    session: CliSession, admin: "Admin", mode: str, dry_run: "DestroyResult", *, force: bool
) -> "DestroyResult":
    from shale_cli.framework.output.progress import progress

    total, done = len(dry_run.plan.objects), 0
    with progress(session.output, session.env.clock, "deleted", "objects") as on_progress:

        def on_deleted(_: object) -> None:
            nonlocal done
            done += 1
            on_progress(done, total)

        return await admin.destroy(mode, confirm=True, force=force, on_deleted=on_deleted)


def _mode(*, soft: bool, hard: bool) -> str:
    from shale.errors import InvalidRequestError

    if soft and hard:
        raise InvalidRequestError("give either --soft or --hard")
    return "soft" if soft else "hard"


def _show(session: CliSession, result: "DestroyResult", *, objects: bool) -> None:
    """Print the totals of a deletion or dry run; with ``objects``, also each object."""
    from shale.admin.json_values import rfc3339
    from shale.core.units import format_age

    plan = result.plan
    totals = [{"namespace": each.namespace, "objects": each.count, "bytes": each.size} for each in plan.totals()]
    listed = [{"key": each.key, "namespace": each.stage.namespace, "bytes": each.size} for each in plan.objects]
    if session.output.is_table:
        if objects:
            session.output.listing("objects", listed, ("key", "namespace", "bytes"))
        session.output.listing("namespaces", totals, COLUMNS)
        if plan.newest_ms is not None and not result.is_done:
            written = format_age(session.env.clock.now_ms() - plan.newest_ms)
            session.output.note(f"the latest object was written {written} ago")
        return
    data: dict[str, Any] = {
        "path": plan.root,
        "mode": result.mode.value,
        "is_done": result.is_done,
        "manifest_id": plan.manifest_id,
        "is_begun": plan.is_begun,
        "destroyed_at": None if result.mark is None else rfc3339(result.mark.destroyed_at_s * 1000),
        "objects": len(plan.objects),
        "bytes": plan.size,
        "namespaces": totals,
        "checkpoints": [str(each.id) for each in plan.checkpoints],
        "foreign": list(plan.foreign),
        "parents": list(plan.parents),
        "newest_ms": plan.newest_ms,
    }
    if objects:
        data["items"] = listed
    session.output.record(data, [])
