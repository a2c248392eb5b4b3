"""The global options, which every command accepts before or after the noun.

Typer accepts an option on one side of a noun only, and imports pydantic to convert the first value.  So this module
parses the global options and leaves the rest of the command line to typer.
"""

import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import field
from enum import StrEnum
from typing import TypeVar

from shale.core.lazy_dataclass import dataclass
from shale.errors import InvalidRequestError
from shale_cli.framework.output.writer import Color, Format, KeyEncoding, Output, default_format
from shale_cli.framework.session import GlobalOptions

E = TypeVar("E", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class GlobalOption:
    """A global option.  ``metavar``: the placeholder of its value; ``None`` for a flag.  ``choices``: all values."""

    name: str
    about: str
    metavar: str | None = None
    short: str | None = None
    choices: tuple[str, ...] = ()
    default: str | None = None

    @property
    def record(self) -> tuple[str, str]:
        """The syntax and the meaning, for a line of help."""
        names = self.name if self.short is None else f"{self.short}, {self.name}"
        shown = "" if self.default is None else f"  [default: {self.default}]"
        return f"{names} {self.metavar}" if self.metavar else names, f"{self.about}{shown}"


OPTIONS = (
    GlobalOption("--url", "The database: s3://bucket/path, file:///data/db.", "URL", "-u"),
    GlobalOption("--store", "The store without the path; needs --path.", "URL"),
    GlobalOption("--path", "The database's path in the store.", "PATH", "-p"),
    GlobalOption("--wal-store", "A separate store for the WAL.", "URL"),
    GlobalOption("--config", "A settings file, TOML or YAML; repeatable.", "FILE"),
    GlobalOption("--env-file", "Variables as NAME=value lines; -e only before the noun.", "FILE", "-e"),
    GlobalOption(
        "--output",
        "table (terminals), json (otherwise), jsonl, yaml, csv.",
        "FORMAT",
        "-o",
        choices=tuple(Format),
    ),
    GlobalOption(
        "--key-format",
        "utf8, hex, base64, repr: encoding of keys in arguments and tables.",
        "FORMAT",
        choices=tuple(KeyEncoding),
        default="utf8",
    ),
    GlobalOption("--columns", "Print only these fields: id,progress.output_bytes.", "NAMES"),
    GlobalOption("--no-headers", "Print tables and CSV without a header."),
    GlobalOption("--color", "auto (respects NO_COLOR), always, never.", "WHEN", choices=tuple(Color), default="auto"),
    GlobalOption("--timeout", "Fail after this time, such as 10s.", "TIME"),
    GlobalOption("--quiet", "No notes and progress on stderr.", short="-q"),
    GlobalOption("--verbose", "Log to stderr.", short="-v"),
    GlobalOption("--version", "Show the version and exit."),
)

BEFORE_NOUN = frozenset({"-e", "--version"})
"""After the noun these names belong to commands: ``-e`` is the end of a range in SlateDB's flat commands."""

_BY_NAME = {name: option for option in OPTIONS for name in (option.name, option.short) if name is not None}


def option_of(word: str, *, before_noun: bool) -> GlobalOption | None:
    """Return the global option with this long or short name."""
    return None if word in BEFORE_NOUN and not before_noun else _BY_NAME.get(word)


@dataclass(slots=True)
class ParsedOptions:
    """A command line split into global options and the rest.

    Args:
        values: the values of each global option by its long name; an empty list for a flag.
        rest: all other arguments, in order.
        waiting: a global option at the end whose value is missing.
    """

    values: dict[str, list[str]] = field(default_factory=dict)
    rest: list[str] = field(default_factory=list)
    waiting: GlobalOption | None = None

    @property
    def noun(self) -> str | None:
        """The noun; ``None`` if the command line has none."""
        return next((word for word in self.rest if not word.startswith("-")), None)


def split(arguments: Sequence[str]) -> ParsedOptions:
    """Split the global options from a command line; arguments after ``--`` stay unchanged."""
    found = ParsedOptions()
    left = deque(arguments)
    before = True
    while left:
        word = left.popleft()
        if word == "--":
            found.rest += [word, *left]
            break
        name, equals, value = word.partition("=")
        option = option_of(name if equals and word.startswith("--") else word, before_noun=before)
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
    """Return the option of ``-ojson``.  Only before the noun: after it, this could be a mistyped command option."""
    option = _BY_NAME.get(word[:2]) if len(word) > 2 else None
    return None if option is None or option.metavar is None else option


def global_options(found: ParsedOptions) -> GlobalOptions:
    """Return the global options; of a repeated option the last value counts.

    Raises:
        InvalidRequestError: a value is missing or invalid.
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
            _choice(KeyEncoding, "--key-format", last) or KeyEncoding.UTF8,
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
