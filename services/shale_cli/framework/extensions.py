"""Nouns of other packages: typer applications under entry points of the group ``shale.commands``.

An application is imported only for its own commands.  For the list of commands, one line of help has an entry point of
its own, so that the list does not import the application::

    [project.entry-points."shale.commands"]
    spark = "shale_spark.cli.app:app"

    [project.entry-points."shale.command_help"]
    spark = "shale_spark.cli:HELP"

Without the second entry point, the list imports the application.
"""

from typing import TYPE_CHECKING

from shale.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import typer


def extensions(app: "typer.Typer", wanted: str | None) -> "Iterator[tuple[str, typer.Typer]]":
    """Yield the extension ``wanted``; for an unknown name, yield the help of all extensions.

    Raises:
        InvalidRequestError: the extension cannot be imported.
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
        if (help_only := _help_only(name)) is not None:
            yield name, help_only


def _help_only(name: str) -> "typer.Typer | None":
    """Return an application that only has the help of an extension; ``None`` if the extension is broken.

    A broken extension must not break the help page.
    """
    import typer

    from shale.plugins import COMMAND_HELP, known_names, resolve_text

    try:
        if name not in known_names(COMMAND_HELP):
            return _imported(name)
        app = typer.Typer(help=resolve_text(COMMAND_HELP, name))
    except InvalidRequestError:
        return None
    app.callback()(_nothing)
    return app


def _nothing() -> None:
    """Satisfy typer, which rejects an application without commands and callback."""


def _imported(name: str) -> "typer.Typer":
    import typer

    from shale.plugins import COMMANDS, resolve

    found = resolve(COMMANDS, name)
    if not isinstance(found, typer.Typer):
        raise InvalidRequestError(f"command {name!r} is not a typer application")
    return found
