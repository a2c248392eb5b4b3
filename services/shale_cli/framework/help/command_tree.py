"""All commands with their options and examples, for docs/reference/cli.md and ``man shale``."""

from collections.abc import Iterator
from inspect import cleandoc
from typing import Any

import typer
from typer.main import get_command

from shale.core.lazy_dataclass import dataclass
from shale_cli.framework import registry
from shale_cli.framework.global_options import OPTIONS

HELP_OPTION = ("-h, --help", "Show this message and exit.")
"""The option that every command has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandHelp:
    """The help of a command.  ``parameters``: the syntax and meaning of each."""

    name: str
    usage: str
    about: tuple[str, ...]
    parameters: tuple[tuple[str, str], ...]
    examples: tuple[str, ...]
    is_noun: bool
    is_hidden: bool


def command_tree() -> Iterator[CommandHelp]:
    """Yield the help of every built-in command, nouns before their verbs; extensions are not included."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    registry.register(app, None)
    root = get_command(app)
    for name, command in sorted(_below(root)):
        yield from _help_of(f"shale {name}", command)


def global_options() -> tuple[tuple[str, str], ...]:
    """Return the syntax and meaning of every global option."""
    return tuple(each.record for each in OPTIONS)


def _below(command: Any) -> list[tuple[str, Any]]:
    return list(getattr(command, "commands", {}).items())


def _help_of(name: str, command: Any) -> Iterator[CommandHelp]:
    verbs = sorted(_below(command))
    context = command.context_class(command, info_name=name)
    yield CommandHelp(
        name=name,
        usage=" ".join((name, *command.collect_usage_pieces(context))),
        about=tuple(" ".join(part.split()) for part in cleandoc(command.help or "").split("\n\n")),
        parameters=() if verbs else tuple(_parameters(command, name)),
        examples=examples(command.epilog or ""),
        is_noun=bool(verbs),
        is_hidden=command.hidden,
    )
    for verb, below in verbs:
        yield from _help_of(f"{name} {verb}", below)


def examples(epilog: str) -> tuple[str, ...]:
    """Split ``Example:  one`` or ``Examples:  one  |  two``; a shell pipe has single spaces around it."""
    _, colon, rest = epilog.partition(":  ")
    return tuple(each.strip() for each in rest.split("  |  ")) if colon else ()


def _parameters(command: Any, name: str) -> Iterator[tuple[str, str]]:
    context = command.context_class(command, info_name=name)
    for each in command.params:
        record = each.get_help_record(context)
        if record is not None and each.name != "help":
            yield record
