"""Nouns that other packages bring: typer applications under entry points of the group ``shale.commands``.

One is imported when it is asked for; nothing else pays for it.  Whoever asks what there is reads one line of help that
stands apart, and not the application behind it::

    [project.entry-points."shale.commands"]
    spark = "shale_spark.cli.app:app"

    [project.entry-points."shale.command_help"]
    spark = "shale_spark.cli:HELP"

Without the second one, the application itself is asked.
"""

from typing import TYPE_CHECKING

from shale.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import typer


def extensions(app: "typer.Typer", wanted: str | None) -> "Iterator[tuple[str, typer.Typer]]":
    """The application that ``app`` lacks and the command line names; the help of all, if it names nothing known.

    Raises:
        InvalidRequestError: the one that is wanted cannot be imported.
    """
    own = {group.name for group in app.registered_groups} | {command.name for command in app.registered_commands}
    if wanted in own:
        return
    from shale.plugins import COMMANDS, known_names

    names = [name for name in known_names(COMMANDS) if name not in own]
    if wanted in names:
        yield wanted, _imported(wanted)
        return
    for name in names:
        if (told := _told(name)) is not None:
            yield name, told


def _told(name: str) -> "typer.Typer | None":
    """An application with nothing but the help of another one; ``None`` if that one is broken.

    What is broken must not hide the rest from whoever asks for help.
    """
    import typer

    from shale.plugins import COMMAND_HELP, known_names, resolve_text

    try:
        if name not in known_names(COMMAND_HELP):
            return _imported(name)
        told = typer.Typer(help=resolve_text(COMMAND_HELP, name))
    except InvalidRequestError:
        return None
    told.callback()(_nothing)
    return told


def _nothing() -> None:
    """Typer takes no application without commands that has no callback either."""


def _imported(name: str) -> "typer.Typer":
    import typer

    from shale.plugins import COMMANDS, resolve

    found = resolve(COMMANDS, name)
    if not isinstance(found, typer.Typer):
        raise InvalidRequestError(f"command {name!r} is not a typer application")
    return found
