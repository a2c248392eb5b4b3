"""From words to the command that they name, without parsing anything: for help, and for completion."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import typer


@dataclass(frozen=True, slots=True)
class Found:
    """Where words lead.

    Args:
        command, context: of typer's.
        rest: what follows the names.
        unknown: the word that should name a verb, and does not.
    """

    command: Any
    context: Any
    rest: tuple[str, ...] = ()
    unknown: str | None = None

    @property
    def verbs(self) -> Mapping[str, Any]:
        """The commands below this one, for people to see."""
        below: Mapping[str, Any] = getattr(self.command, "commands", {})
        return {name: command for name, command in below.items() if not command.hidden}


def command_at(app: "typer.Typer", words: Sequence[str]) -> Found:
    """Follow the names of nouns and verbs as far as they go; the first option ends them."""
    from typer.main import get_command

    command: Any = get_command(app)
    context = command.context_class(command, info_name="shale", **command.context_settings)
    return command_below(command, context, words)


def command_below(command: Any, context: Any, words: Sequence[str]) -> Found:
    """The same from a group of typer's on, and its context."""
    for index, word in enumerate(words):
        verbs = getattr(command, "commands", None)
        if verbs is None or word.startswith("-"):
            return Found(command, context, tuple(words[index:]))
        if word not in verbs:
            return Found(command, context, tuple(words[index:]), word)
        command = verbs[word]
        context = command.context_class(command, info_name=word, parent=context, **command.context_settings)
    return Found(command, context)
