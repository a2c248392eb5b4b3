"""``shale completion``: what makes a shell complete our commands; and the answers, when one asks.

Typer has this, too, but its scripts lose the place in bash as soon as a URL with its colon was typed, its options are
those of one side of the noun, and it loads pydantic and rich for each answer.
"""

import os
import sys
from enum import StrEnum
from typing import Annotated

import typer

from shale_cli.completion_scripts import SCRIPTS
from shale_cli.offers import Offer, offers


class Shell(StrEnum):
    """The shells that we have a script for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
    POWERSHELL = "powershell"


def completion(shell: Annotated[Shell, typer.Argument(help="bash, zsh, fish or powershell.")]) -> None:
    """Print the script that completes commands, options and their values in a shell."""
    sys.stdout.write(SCRIPTS[shell.value])


def answer() -> int:
    """Print what may stand at the end of ``$_SHALE_LINE``, for the shell in ``$_SHALE_COMPLETE``."""
    words, begun = words_of(os.environ.get("_SHALE_LINE", ""))
    shell = os.environ["_SHALE_COMPLETE"]
    cut = _cut_by_bash(begun) if shell == Shell.BASH else 0
    for each in offers(words[1:], begun):
        sys.stdout.write(f"{_written(each, shell, cut)}\n")
    return 0


def words_of(line: str) -> tuple[list[str], str]:
    """The finished words of a command line, and the one that is begun; quotes need not be closed yet."""
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


def _written(offer: Offer, shell: str, cut: int) -> str:
    about = " ".join(offer.about.split())
    match shell:
        case Shell.ZSH:
            word = offer.word.replace("\\", "\\\\").replace(":", "\\:")
            return f"{word}:{about}" if about else word
        case Shell.FISH | Shell.POWERSHELL:
            return f"{offer.word}\t{about}"
        case _:
            return offer.word[cut:]


def _cut_by_bash(begun: str) -> int:
    """How much of the word bash takes for another one: up to its last break, such as the = of ``--output=js``."""
    breaks = os.environ.get("COMP_WORDBREAKS", "=:")
    return max((begun.rfind(char) + 1 for char in "=:" if char in breaks), default=0)
