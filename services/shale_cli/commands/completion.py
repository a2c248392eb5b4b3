"""``shale completion``: the shell script for completion, and the completions that it requests.

Typer's own completion does not fit: its bash script breaks at the colon of a URL, it knows global options on one side
of the noun only, and it imports pydantic and rich for every request.
"""

import os
import sys
from enum import StrEnum
from typing import Annotated

import typer

from shale_cli.framework.help.completion_scripts import SCRIPTS
from shale_cli.framework.help.completions import Completion, completions


class Shell(StrEnum):
    """The supported shells."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
    POWERSHELL = "powershell"


def completion(shell: Annotated[Shell, typer.Argument(help="bash, zsh, fish or powershell.")]) -> None:
    """Print the completion script of a shell."""
    sys.stdout.write(SCRIPTS[shell.value])


def print_completions() -> int:
    """Print the completions of ``$_SHALE_LINE`` for the shell in ``$_SHALE_COMPLETE``."""
    words, begun = words_of(os.environ.get("_SHALE_LINE", ""))
    shell = os.environ["_SHALE_COMPLETE"]
    cut = _cut_by_bash(begun) if shell == Shell.BASH else 0
    for each in completions(words[1:], begun):
        sys.stdout.write(f"{_written(each, shell, cut)}\n")
    return 0


def words_of(line: str) -> tuple[list[str], str]:
    """Return the complete words of a command line and the word that is being typed; quotes may still be open."""
    import shlex

    lexer = shlex.shlex(line, posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    try:
        words.extend(lexer)
    except ValueError:
        words.append(lexer.token)
        return words[:-1], words[-1]
    if not words or line[-1:].isspace():
        return words, ""
    return words[:-1], words[-1]


def _written(completion: Completion, shell: str, cut: int) -> str:
    about = " ".join(completion.about.split())
    match shell:
        case Shell.ZSH:
            word = completion.word.replace("\\", "\\\\").replace(":", "\\:")
            return f"{word}:{about}" if about else word
        case Shell.FISH | Shell.POWERSHELL:
            return f"{completion.word}\t{about}"
        case _:
            return completion.word[cut:]


def _cut_by_bash(begun: str) -> int:
    """Return how much of the word bash treats as an earlier word: up to its last break, such as ``=``."""
    breaks = os.environ.get("COMP_WORDBREAKS", "=:")
    return max((begun.rfind(char) + 1 for char in "=:" if char in breaks), default=0)
