"""``shale db destroy``, and its flat names ``delete-db`` and ``destroy``: the end of a database."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from shale_cli.session import Session, complain, run

if TYPE_CHECKING:
    from shale.admin.admin import Admin
    from shale.admin.destruction import Destruction

Soft = Annotated[bool, typer.Option("--soft", help="Mark it; a collector deletes it after its grace.")]
Hard = Annotated[bool, typer.Option("--hard", help="Delete it now; the default.")]
Force = Annotated[
    bool, typer.Option("--force", help="In spite of live checkpoints and of objects that are not the database's.")
]
Confirm = Annotated[bool, typer.Option("--confirm", help="Do it.  Without it this is a dry run.")]

COLUMNS = ("namespace", "objects", "bytes")


def destroy(
    context: typer.Context,
    *,
    soft: Soft = False,
    hard: Hard = False,
    force: Force = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it.  Without it this is a dry run.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would go, object by object.")] = False,
) -> None:
    """Destroy a database for ever: a dry run until --yes.

    Stop its writers, compactors and collectors first.  Run it again after an interruption; do not use the path for
    another database while a process of the old one may still exist.
    """

    async def work(session: Session) -> None:
        from shale_cli.danger import is_confirmed

        mode = _mode(soft=soft, hard=hard)
        async with _admin(session) as admin:
            told = await admin.destroy(mode, force=force)
            obstacles = () if force else told.plan.obstacles()
            if not yes or dry_run:
                _show(session, told, objects=dry_run or not session.output.is_table)
                for obstacle in obstacles:
                    complain(f"{'would wait' if mode == 'soft' else 'would be refused'}: {obstacle}")
            what = f"delete {len(told.plan.objects)} objects of {told.plan.size} bytes"
            what = what if mode == "hard" else f"mark a database, and {what} after the grace"
            if obstacles and not yes and mode == "hard":
                return
            if not is_confirmed(session.output, session.path, yes=yes, dry_run=dry_run, what=what):
                return
            _show(session, await _carry_out(session, admin, mode, told, force=force), objects=False)

    run(context, work)


def delete_db(context: typer.Context, *, confirm: Confirm = False) -> None:
    """`shale db destroy --hard`."""
    _at_once(context, "hard", confirm=confirm, force=False)


def destroy_by_flags(
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
    async def work(session: Session) -> None:
        async with _admin(session) as admin:
            told = await admin.destroy(mode, force=force)
            if confirm:
                told = await _carry_out(session, admin, mode, told, force=force)
        _show(session, told, objects=not confirm)

    run(context, work)


async def _carry_out(session: Session, admin: "Admin", mode: str, told: "Destruction", *, force: bool) -> "Destruction":
    from shale_cli.progress import progress

    total, done = len(told.plan.objects), 0
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


def _admin(session: Session) -> "Admin":
    from shale.admin.admin import Admin

    return Admin(
        store=session.location.store_url,
        path=session.path,
        wal_store=session.wal_store,
        env=session.env,
        store_options=session.store_options,
    )


def _show(session: Session, told: "Destruction", *, objects: bool) -> None:
    """What was done or would be; ``objects``: each of them, too."""
    from shale.admin.json_values import rfc3339
    from shale_cli.sizes import age

    plan = told.plan
    totals = [{"namespace": each.namespace, "objects": each.count, "bytes": each.size} for each in plan.totals()]
    listed = [{"key": each.key, "namespace": each.stage.namespace, "bytes": each.size} for each in plan.objects]
    if session.output.is_table:
        if objects:
            session.output.listing("objects", listed, ("key", "namespace", "bytes"))
        session.output.listing("namespaces", totals, COLUMNS)
        if plan.newest_ms is not None and not told.is_done:
            written = age(session.env.clock.now_ms() - plan.newest_ms)
            session.output.note(f"the youngest object was written {written} ago")
        return
    data: dict[str, Any] = {
        "path": plan.root,
        "mode": told.mode.value,
        "is_done": told.is_done,
        "manifest_id": plan.manifest_id,
        "is_begun": plan.is_begun,
        "destroyed_at": None if told.mark is None else rfc3339(told.mark.destroyed_at_s * 1000),
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
