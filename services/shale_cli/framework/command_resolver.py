"""Resolves words to a command without parsing options, for help pages and completion."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shale.core.lazy_dataclass import dataclass

if TYPE_CHECKING:
    import typer


@dataclass(frozen=True, slots=True)
class ResolvedCommand:
    """The command that words name.

    Args:
        command: the command of typer.
        context: its context.
        rest: the words after the names.
        unknown: a word that should be a verb and is not.
    """

    command: Any
    context: Any
    rest: tuple[str, ...] = ()
    unknown: str | None = None

    @property
    def verbs(self) -> Mapping[str, Any]:
        """The visible subcommands."""
        below: Mapping[str, Any] = getattr(self.command, "commands", {})
        return {name: command for name, command in below.items() if not command.hidden}


def find_command(app: "typer.Typer", words: Sequence[str]) -> ResolvedCommand:
    """Resolve leading names of nouns and verbs; the first option ends them."""
    from typer.main import get_command

    command: Any = get_command(app)
    context = command.context_class(command, info_name="shale", **command.context_settings)
    return find_subcommand(command, context, words)


def find_subcommand(command: Any, context: Any, words: Sequence[str]) -> ResolvedCommand:
    """Resolve names below a group of typer and its context."""
    for index, word in enumerate(words):
        verbs = getattr(command, "commands", None)
        if verbs is None or word.startswith("-"):
            return ResolvedCommand(command, context, tuple(words[index:]))
        if word not in verbs:
            return ResolvedCommand(command, context, tuple(words[index:]), word)
        command = verbs[word]
        context = command.context_class(command, info_name=word, parent=context, **command.context_settings)
    return ResolvedCommand(command, context)
