"""``shale up``: writer, compactor, gc and reader of one database as child processes, for one's own machine."""

from typing import Annotated

import typer

from shale_cli.session import GlobalOptions, Session, command_line, run


def up(
    context: typer.Context,
    port: Annotated[
        int,
        typer.Option(help="Port of the writer's network interface; the reader takes the next one; 0 takes free ones."),
    ] = 8080,
    admin_port: Annotated[
        int,
        typer.Option(help="Admin port of the writer; compactor, gc and reader take the next three; 0 takes free ones."),
    ] = 9464,
) -> None:
    """Run the four daemons until Ctrl-C, or until one of them ends, which ends the others.

    What the daemons log goes to stderr.  Settings in the environment and in --config files reach all of them.
    """
    options: GlobalOptions = context.obj

    async def work(session: Session) -> int:
        from shale.errors import InvalidRequestError
        from shale_cli.stack import plan_stack, run_stack

        if session.location.store_url.startswith("memory:"):
            raise InvalidRequestError(
                f"{session.location.url}: processes cannot share memory; use file:///directory/db"
            )
        session.output.note(
            f"starting writer, compactor, gc and reader of {session.path} in {session.location.store_url}"
        )
        return await run_stack(plan_stack(command_line(options), port=port, admin_port=admin_port), session)

    run(context, work)
