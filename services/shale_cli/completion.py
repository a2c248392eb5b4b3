"""``shale completion``: what makes a shell complete our commands, and which of them it asks about."""

import os
import sys
from enum import StrEnum
from typing import Annotated

import typer

COMPLETE = "_SHALE_COMPLETE"
"""Set by the scripts: ``shale`` then prints words instead of doing anything."""


class Shell(StrEnum):
    """The shells that we have a script for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
    POWERSHELL = "powershell"


def completion(shell: Annotated[Shell, typer.Argument(help="bash, zsh, fish or powershell.")]) -> None:
    """Print the script that completes commands, options and their values in a shell."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    script = get_completion_script(prog_name="shale", complete_var=COMPLETE, shell=shell.value)
    sys.stdout.write(f"{script}\n")


def words() -> list[str]:
    """What has been typed, as the scripts tell it, without the word that is not finished yet."""
    text = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    typed = text.split()[1:]
    return typed if text.endswith((" ", "\n")) or not typed else typed[:-1]
