"""SlateDB's flat names: hidden commands that print JSON whatever stdout is, so that scripts carry over.

Source: docs/operations.md 14.
"""

from dataclasses import replace
from typing import Annotated

import typer

from shale_cli.session import GlobalOptions, Session, run


def register(app: typer.Typer) -> None:
    """Add the hidden commands."""
    for name, command in (
        ("submit-compaction", submit_compaction),
        ("read-compaction", read_compaction),
        ("read-compactions", read_compactions),
        ("list-compactions", list_compactions),
    ):
        app.command(name, hidden=True)(command)


def submit_compaction(
    context: typer.Context,
    request: Annotated[str, typer.Option(help="The request as JSON.")],
    scheduler: Annotated[str, typer.Option(help="Accepted for SlateDB's sake; requests need none.")] = "size-tiered",
) -> None:
    """`shale compaction submit --request JSON`."""

    async def work(session: Session) -> int | None:
        from shale.errors import InvalidRequestError
        from shale_cli.compaction import submit_request
        from shale_cli.compaction_request import parse_text

        if scheduler != "size-tiered":
            raise InvalidRequestError(f"--scheduler: {scheduler!r} is not size-tiered")
        return await submit_request(session, parse_text(request))

    run(_in_json(context), work)


def read_compaction(
    context: typer.Context,
    compaction_id: Annotated[str, typer.Option("--id", "-i", help="The ULID of the compaction.")],
    compactions_id: Annotated[int | None, typer.Option(help="A version of the compactions file.")] = None,
) -> None:
    """`shale compaction status ID`."""

    async def work(session: Session) -> None:
        from shale_cli.compaction import show_status

        await show_status(session, compaction_id, compactions_id)

    run(_in_json(context), work)


def read_compactions(
    context: typer.Context,
    file_id: Annotated[int | None, typer.Option("--id", "-i", help="A version; the latest by default.")] = None,
) -> None:
    """`shale compactions show [ID]`."""
    from shale_cli.compactions import show

    show(_in_json(context), file_id)


def list_compactions(
    context: typer.Context,
    start: Annotated[int | None, typer.Option("--start", "-s", help="The first version.")] = None,
    end: Annotated[int | None, typer.Option("--end", "-e", help="The version to stop before.")] = None,
) -> None:
    """`shale compactions list`."""
    from shale_cli.compactions import list_

    list_(_in_json(context), start, end)


def _in_json(context: typer.Context) -> typer.Context:
    from shale_cli.output import Format

    options: GlobalOptions = context.obj
    context.obj = replace(options, output=replace(options.output, format=Format.JSON))
    return context
