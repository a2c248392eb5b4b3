"""``--help`` without parsing: typer imports pydantic to parse the first option, which would double the time."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from shale_cli.framework.command_resolver import find_command

if TYPE_CHECKING:
    import typer

HELP = ("--help", "-h")


def is_wanted(arguments: Sequence[str]) -> bool:
    """Return whether the arguments before ``--`` request help."""
    before = list(arguments)[: list(arguments).index("--")] if "--" in arguments else arguments
    return any(argument in HELP for argument in before)


def show(app: "typer.Typer", words: Sequence[str]) -> bool:
    """Print the help of a command; return ``False`` for an unknown command, which the parser then reports.

    Args:
        app: the application.
        words: the noun and the following arguments; empty for the main help page.
    """
    found = find_command(app, words)
    if found.unknown is not None:
        return False
    sys.stdout.write(f"{found.command.get_help(found.context)}\n")
    return True
