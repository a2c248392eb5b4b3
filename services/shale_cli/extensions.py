"""Nouns that other packages bring: typer applications under entry points of the group ``shale.commands``.

One is imported when it is asked for, all of them when somebody asks what there is; nothing else pays for them::

    [project.entry-points."shale.commands"]
    spark = "shale_spark.cli.app:app"
"""

from typing import TYPE_CHECKING

from shale.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import typer


def extensions(app: "typer.Typer", wanted: str | None) -> "Iterator[tuple[str, typer.Typer]]":
    """Applications that ``app`` lacks and this command line needs, by their names.

    Raises:
        InvalidRequestError: the one that is wanted cannot be imported.
    """
    own = {group.name for group in app.registered_groups} | {command.name for command in app.registered_commands}
    if wanted in own:
        return
    from shale.plugins import COMMANDS, known_names

    for name in known_names(COMMANDS):
        if name in own or wanted not in {None, name}:
            continue
        try:
            yield name, _imported(name)
        except InvalidRequestError:
            # What is broken must not hide the rest from whoever asks for help.
            if wanted == name:
                raise


def _imported(name: str) -> "typer.Typer":
    import typer

    from shale.plugins import COMMANDS, resolve

    found = resolve(COMMANDS, name)
    if not isinstance(found, typer.Typer):
        raise InvalidRequestError(f"command {name!r} is not a typer application")
    return found
