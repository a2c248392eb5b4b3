"""``shale doctor``: does the store keep the promises that the protocols stand on?"""

from typing import TYPE_CHECKING, Annotated

import typer

from shale_cli.session import Session, complain, run

if TYPE_CHECKING:
    from shale.store.preflight import CheckResult


def doctor(
    context: typer.Context,
    fast: Annotated[bool, typer.Option("--fast", help="The short form that daemons run at start.")] = False,
) -> None:
    """Race conditional writes against the store and try everything else the protocols use; exit code 4 if it lies.

    Scratch objects are written outside every database's namespaces and deleted afterwards.
    """

    async def work(session: Session) -> int:
        from shale.service.exit_codes import ExitCode
        from shale.store.preflight import check_store

        async with session.open_store() as store:
            results = await check_store(store, session.env, full=not fast)
        items = [
            {
                "check": each.name,
                "result": _word(each),
                "required": each.required,
                "expected": each.expected,
                "seen": each.seen,
            }
            for each in results
        ]
        session.output.listing("checks", items, ("check", "result", "required", "expected", "seen"))
        broken = [each for each in results if each.required and each.ok is False]
        for each in broken:
            complain(f"{session.location.store_url}: {each.name}: expected {each.expected}, saw {each.seen}")
        return ExitCode.NEGATIVE if broken else ExitCode.OK

    run(context, work)


def _word(result: "CheckResult") -> str:
    if result.ok is None:
        return "skipped"
    if result.ok:
        return "ok"
    return "failed" if result.required else "warning"
