"""``shale up``: runs writer, compactor, gc and reader of one database locally, as child processes."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from shale.service.exit_codes import ExitCode
from shale_cli.framework.session import CliSession, GlobalOptions, command_line, print_error, run

if TYPE_CHECKING:
    from shale_cli.commands.up.stack import DaemonSpec


def up(
    context: typer.Context,
    port: Annotated[
        int,
        typer.Option(help="HTTP port of the writer; the reader uses the next one; 0: any free ports."),
    ] = 8080,
    admin_port: Annotated[
        int,
        typer.Option(help="Admin port of the writer; compactor, gc and reader use the next three; 0: any free ports."),
    ] = 9464,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A setting of all daemons that have it, or of one: writer.NAME=VALUE; repeatable.",
        ),
    ] = None,
) -> None:
    """Run the four daemons until Ctrl-C, or until one of them ends, which stops the others.

    The daemons log to stderr.  Settings in the environment and in --config files apply to all of them.
    """
    options: GlobalOptions = context.obj

    async def work(session: CliSession) -> int:
        from shale.errors import InvalidRequestError
        from shale_cli.commands.up.stack import PortInUseError, plan_stack, run_stack
        from shale_cli.framework.ports import PortReservation

        if session.location.store_url.startswith("memory:"):
            raise InvalidRequestError(
                f"{session.location.url}: processes cannot share memory; use file:///directory/db"
            )
        with PortReservation() as ports:
            try:
                plan = plan_stack(command_line(options), ports, port=port, admin_port=admin_port)
            except PortInUseError as error:
                print_error(str(error))
                return ExitCode.CONFIG
            plan = _with_settings(plan, set_ or [])
            session.output.note(
                f"starting writer, compactor, gc and reader of {session.path} in {session.location.store_url}"
            )
            return await run_stack(plan, session)

    run(context, work)


def _with_settings(plan: list["DaemonSpec"], assignments: list[str]) -> list["DaemonSpec"]:
    """Add the settings of ``--set``; only then this long-running process imports the classes of settings."""
    if not assignments:
        return plan
    from shale_cli.commands.up.settings import daemon_settings

    given = daemon_settings(assignments)
    return [replace(each, arguments=(*each.arguments, *given[each.name])) for each in plan]
