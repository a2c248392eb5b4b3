"""What every command takes, before the noun or behind it.

These options are read here and not by typer, which knows an option on one side of a noun only, and loads pydantic for
the first value that it meets.  What is left of the command line is typer's.
"""

import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from shale.errors import InvalidRequestError
from shale_cli.output import Color, Format, KeyFormat, Output, default_format
from shale_cli.session import GlobalOptions

E = TypeVar("E", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class GlobalOption:
    """One of them.  ``metavar``: what its value is; ``None`` for a flag.  ``choices``: all values there are."""

    name: str
    about: str
    metavar: str | None = None
    short: str | None = None
    choices: tuple[str, ...] = ()
    default: str | None = None

    @property
    def record(self) -> tuple[str, str]:
        """How it is written, and what it means, as a line of help."""
        names = self.name if self.short is None else f"{self.short}, {self.name}"
        shown = "" if self.default is None else f"  [default: {self.default}]"
        return f"{names} {self.metavar}" if self.metavar else names, f"{self.about}{shown}"


OPTIONS = (
    GlobalOption("--url", "The database: s3://bucket/path, file:///data/db.", "URL", "-u"),
    GlobalOption("--store", "The store alone, with --path.", "URL"),
    GlobalOption("--path", "The database's path in the store.", "PATH", "-p"),
    GlobalOption("--wal-store", "The store of the WAL, if it has one of its own.", "URL"),
    GlobalOption("--config", "Settings as TOML or YAML; repeatable.", "FILE"),
    GlobalOption("--env-file", "Lines NAME=value; -e only before the noun.", "FILE", "-e"),
    GlobalOption(
        "--output", "table (on a terminal), json (else), jsonl, yaml, csv.", "FORMAT", "-o", choices=tuple(Format)
    ),
    GlobalOption(
        "--key-format",
        "utf8, hex, base64, repr: keys here and in tables.",
        "FORMAT",
        choices=tuple(KeyFormat),
        default="utf8",
    ),
    GlobalOption("--columns", "Only these fields: id,progress.output_bytes.", "NAMES"),
    GlobalOption("--no-headers", "Tables and CSV without their first line."),
    GlobalOption("--color", "auto (minds NO_COLOR), always, never.", "WHEN", choices=tuple(Color), default="auto"),
    GlobalOption("--timeout", "Give up after this time, such as 10s.", "TIME"),
    GlobalOption("--quiet", "No remarks on stderr.", short="-q"),
    GlobalOption("--verbose", "Log lines on stderr.", short="-v"),
    GlobalOption("--version", "Show the version and exit."),
)

BEFORE_THE_NOUN = frozenset({"-e", "--version"})
"""Behind it these names belong to commands: ``-e`` is the end of a range for SlateDB's flat names."""

_BY_NAME = {name: option for option in OPTIONS for name in (option.name, option.short) if name is not None}


def option_of(word: str, *, before_the_noun: bool) -> GlobalOption | None:
    """The option whose name this is, long or short."""
    return None if word in BEFORE_THE_NOUN and not before_the_noun else _BY_NAME.get(word)


@dataclass(slots=True)
class Split:
    """A command line taken apart.

    Args:
        values: what was given to each option, by its long name; nothing to a flag.
        rest: all other arguments, in their order: the noun comes first, unless an option of nobody does.
        waiting: the option that stands at the end and lacks its value.
    """

    values: dict[str, list[str]] = field(default_factory=dict)
    rest: list[str] = field(default_factory=list)
    waiting: GlobalOption | None = None

    @property
    def noun(self) -> str | None:
        """What the command is about; ``None`` where somebody only asks for help, or says nothing."""
        return next((word for word in self.rest if not word.startswith("-")), None)


def split(arguments: Sequence[str]) -> Split:
    """Take the global options out of a command line; everything behind ``--`` is left as it is."""
    found = Split()
    left = deque(arguments)
    before = True
    while left:
        word = left.popleft()
        if word == "--":
            found.rest += [word, *left]
            break
        name, equals, value = word.partition("=")
        option = option_of(name if equals and word.startswith("--") else word, before_the_noun=before)
        if option is None and before and (attached := _attached(word)) is not None:
            option, equals, value = attached, "=", word[2:]
        if option is None or (equals and option.metavar is None):
            found.rest.append(word)
            before = before and word.startswith("-")
        elif option.metavar is None:
            found.values.setdefault(option.name, [])
        elif equals:
            found.values.setdefault(option.name, []).append(value)
        elif left:
            found.values.setdefault(option.name, []).append(left.popleft())
        else:
            found.waiting = option
    return found


def _attached(word: str) -> GlobalOption | None:
    """The option of ``-ojson``.  Only before the noun: behind it, it may be a slip in an option of the command."""
    option = _BY_NAME.get(word[:2]) if len(word) > 2 else None
    return None if option is None or option.metavar is None else option


def global_options(found: Split) -> GlobalOptions:
    """What the options say; the last one counts where one was given twice.

    Raises:
        InvalidRequestError: one has no value, or none of those that it can have.
    """
    if found.waiting is not None:
        raise InvalidRequestError(f"{found.waiting.name} needs a value: {found.waiting.name} {found.waiting.metavar}")
    last = {name: values[-1] for name, values in found.values.items() if values}
    columns = tuple(name.strip() for name in last.get("--columns", "").split(",") if name.strip())
    return GlobalOptions(
        url=last.get("--url"),
        store=last.get("--store"),
        path=last.get("--path"),
        wal_store=last.get("--wal-store"),
        config=tuple(found.values.get("--config", ())),
        timeout=last.get("--timeout"),
        verbose="--verbose" in found.values,
        output=Output(
            _choice(Format, "--output", last) or default_format(sys.stdout),
            _choice(KeyFormat, "--key-format", last) or KeyFormat.UTF8,
            "--quiet" in found.values,
            columns,
            "--no-headers" not in found.values,
            _choice(Color, "--color", last) or Color.AUTO,
        ),
    )


def _choice(kind: type[E], name: str, last: dict[str, str]) -> E | None:
    if name not in last:
        return None
    try:
        return kind(last[name])
    except ValueError:
        raise InvalidRequestError(f"{name}: {last[name]!r} is none of {', '.join(kind)}") from None
