"""docs/reference/cli.md: the reference of all commands, generated from the commands (``make gen``)."""

import sys
import textwrap
from collections.abc import Iterator, Sequence

from shale_cli.framework.help.command_tree import CommandHelp, command_tree, global_options
from shale_cli.framework.registry import ALIASES

PAGE_WIDTH = 98

_HEAD = """# The command line

<!-- parsed only on this page: tests/integration/cli executes every command -->

Made by `make gen` from the commands; a test compares both.
[Use the command line](../how-to/command-line.md) describes what all commands share,
[Exit codes](exit-codes.md) what the codes mean. Processes (`shale writer`, `compactor`, `worker`,
`gc`, `reader`) take the options that name a database, `--config`, `--set NAME=VALUE` and what their
`--help` shows; [settings.md](settings.md) has the rest. `shale spark` has its own page:
[spark.md](../how-to/spark.md).
"""
_ALIASES = """
## Names of SlateDB's tool

They take SlateDB's flags, act at once, and always print JSON. `run-writer`, `run-compactor` and
`run-worker` are the processes, `schedule-garbage-collection` is `shale gc`.
"""


def page() -> str:
    """Return the page as Markdown."""
    commands = list(command_tree())
    lines = [_HEAD, "## Every command", "", *_table(global_options())]
    for command in commands:
        if not command.is_hidden:
            lines += _section(command)
    lines.append(_ALIASES)
    lines += [_alias(command) for command in commands if command.name.removeprefix("shale ") in ALIASES]
    return "\n".join((*lines, ""))


def _section(command: CommandHelp) -> Iterator[str]:
    yield ""
    if command.is_noun:
        yield f"## {command.name}"
        yield ""
        yield from (_wrapped(each) for each in command.about)
        return
    yield f"{'##' if command.name.count(' ') == 1 else '###'} {command.name}"
    for each in command.about:
        yield ""
        yield _wrapped(_escaped(each))
    yield ""
    yield "```sh"
    yield from command.examples or (command.usage,)
    yield "```"
    if command.parameters:
        yield ""
        yield from _table(command.parameters)


def _table(parameters: Sequence[tuple[str, str]]) -> Iterator[str]:
    for name, meaning in parameters:
        yield _wrapped(f"- `{name}`: {_escaped(meaning)}", "  ")


def _alias(command: CommandHelp) -> str:
    flags = ", ".join(f"`{name}`" for name, _ in command.parameters)
    return _wrapped(f"- `{command.name.removeprefix('shale ')}`: {flags}", "  ")


def _escaped(text: str) -> str:
    return text.replace("<", "\\<")


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(
        " ".join(text.split()),
        PAGE_WIDTH,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


if __name__ == "__main__":
    sys.stdout.write(page())
