"""``--help`` without parsing: typer loads pydantic for the first option that has a value, ``--help`` included.

That would take as long as all the rest.
"""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from shale_cli.walk import command_at

if TYPE_CHECKING:
    import typer

HELP = ("--help", "-h")


def is_wanted(arguments: Sequence[str]) -> bool:
    """Whether help is asked for, before anything that is no option any more."""
    before = list(arguments)[: list(arguments).index("--")] if "--" in arguments else arguments
    return any(argument in HELP for argument in before)


def show(app: "typer.Typer", words: Sequence[str]) -> bool:
    """Print the help of the command that is named; false if there is none, which the parser then has to say.

    Args:
        words: the noun and what follows it; nothing for the help of all.
    """
    found = command_at(app, words)
    if found.unknown is not None:
        return False
    sys.stdout.write(f"{found.command.get_help(found.context)}\n")
    return True
