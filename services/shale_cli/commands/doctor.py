"""``shale doctor``: checks the guarantees that the protocols need from the store."""

from typing import TYPE_CHECKING, Annotated

import typer

from shale_cli.framework.session import CliSession, print_error, run

if TYPE_CHECKING:
    from shale.store.preflight import CheckResult


def doctor(
    context: typer.Context,
    fast: Annotated[bool, typer.Option("--fast", help="Only the short check that daemons run at start.")] = False,
) -> None:
    """Test concurrent conditional writes and all other store operations in use; exit 4 if a guarantee fails.

    Scratch objects are written below the path of the database, beside its own, and deleted afterwards.
    """

    async def work(session: CliSession) -> int:
        from shale.service.exit_codes import ExitCode
        from shale.store.preflight import CAS_CHECKS, CAS_HINT, check_store
        from shale.types import CasMode

        async with session.open_store() as store:
            results = await check_store(store, session.env, full=not fast, prefix=session.location.path)
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
            print_error(f"{session.location.store_url}: {each.name}: expected {each.expected}, saw {each.seen}")
        if session.store_options.cas is CasMode.NATIVE and any(each.name in CAS_CHECKS for each in broken):
            print_error(CAS_HINT)
        return ExitCode.NEGATIVE if broken else ExitCode.OK

    run(context, work)


def _word(result: "CheckResult") -> str:
    if result.ok is None:
        return "skipped"
    if result.ok:
        return "ok"
    return "failed" if result.required else "warning"
