"""docs/cli.md: every command, made of the commands themselves (``make gen``)."""

import sys
from collections.abc import Iterator, Sequence

from shale_cli.command_tree import Told, command_tree, global_options
from shale_cli.commands import ALIASES

_HEAD = """# The command line

Made by `make gen` from the commands; a test compares both.  [operations.md](operations.md) 14 says what holds for
all of them, and 12 what the exit codes mean.  Processes (`shale writer`, `compactor`, `worker`, `gc`, `reader`) take
the options for the place, `--config`, `--set NAME=VALUE` and what their `--help` says; [settings.md](settings.md) has
the rest.  `shale spark` has a page of its own: [spark.md](spark.md).
"""
_ALIASES = """
## Names of SlateDB's tool, and of the design

They take SlateDB's flags, act at once, and always print JSON.  `run-writer`, `run-compactor` and `run-worker` are
the processes, `schedule-garbage-collection` is `shale gc`.

| name | flags |
| --- | --- |"""


def page() -> str:
    """The whole page, as Markdown."""
    told = list(command_tree())
    lines = [_HEAD, "## Every command", "", *_table(global_options())]
    for each in told:
        if not each.is_hidden:
            lines += _section(each)
    lines.append(_ALIASES)
    lines += [_alias(each) for each in told if each.name.removeprefix("shale ") in ALIASES]
    return "\n".join((*lines, ""))


def _section(told: Told) -> Iterator[str]:
    yield ""
    if told.is_noun:
        yield f"## {told.name}"
        yield ""
        yield from told.about
        return
    yield f"{'##' if told.name.count(' ') == 1 else '###'} {told.name}"
    for each in told.about:
        yield ""
        yield _escaped(each)
    yield ""
    yield "```"
    yield from told.examples or (told.usage,)
    yield "```"
    if told.parameters:
        yield ""
        yield from _table(told.parameters)


def _table(parameters: Sequence[tuple[str, str]]) -> Iterator[str]:
    yield "| | |"
    yield "| --- | --- |"
    for name, meaning in parameters:
        yield f"| `{name.replace('|', chr(92) + '|')}` | {_escaped(' '.join(meaning.split()))} |"


def _alias(told: Told) -> str:
    flags = "  ".join(f"`{name.replace('|', chr(92) + '|')}`" for name, _ in told.parameters)
    return f"| `{told.name.removeprefix('shale ')}` | {flags} |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "\\<")


if __name__ == "__main__":
    sys.stdout.write(page())
