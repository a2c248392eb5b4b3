"""``shale up``: runs writer, compactor, gc and reader of one database locally, as child processes."""

from typing import Annotated

import typer

from shale_cli.framework.session import CliSession, GlobalOptions, command_line, run


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
) -> None:
    """Run the four daemons until Ctrl-C, or until one of them ends, which stops the others.

    The daemons log to stderr.  Settings in the environment and in --config files apply to all of them.
    """
    options: GlobalOptions = context.obj

    async def work(session: CliSession) -> int:
        from shale.errors import InvalidRequestError
        from shale_cli.commands.up.stack import plan_stack, run_stack

        if session.location.store_url.startswith("memory:"):
            raise InvalidRequestError(
                f"{session.location.url}: processes cannot share memory; use file:///directory/db"
            )
        session.output.note(
            f"starting writer, compactor, gc and reader of {session.path} in {session.location.store_url}"
        )
        return await run_stack(plan_stack(command_line(options), port=port, admin_port=admin_port), session)

    run(context, work)
