"""User code that settings name: a name that an installed distribution registered, or ``module:attribute``.

A distribution registers names as entry points of a group (``pyproject.toml``)::

    [project.entry-points."shale.compaction_filters"]
    forget-sessions = "my_filters:ForgetSessions"
"""

import importlib
from collections.abc import Callable, Iterable
from functools import reduce
from typing import TYPE_CHECKING, Any

from shale.core.suggestions import suggest
from shale.errors import InvalidRequestError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

COMPACTION_FILTERS = "shale.compaction_filters"
MERGE_OPERATORS = "shale.merge_operators"

COMMANDS = "shale.commands"
COMMAND_HELP = "shale.command_help"
"""One line of help for each command, which is read without importing the command."""

EXECUTORS = "shale.executors"

_NOUNS = {
    COMMANDS: "command",
    COMMAND_HELP: "help of command",
    EXECUTORS: "executor",
    COMPACTION_FILTERS: "compaction filter",
    MERGE_OPERATORS: "merge operator",
}


def entry_points(*, group: str) -> "EntryPoints":
    """Return what installed distributions register in a group."""
    # Imported here: it brings the packages of e-mail and of archives, and few processes use plugins.
    from importlib import metadata

    return metadata.entry_points(group=group)


def known_names(group: str) -> tuple[str, ...]:
    """Return the names that installed distributions register, sorted."""
    return tuple(sorted({point.name for point in entry_points(group=group)}))


def resolve(group: str, name: str, built_in: Iterable[str] = ()) -> Callable[..., Any]:
    """Import the callable that a name refers to.

    Args:
        group: of the entry points.
        name: one that is registered, or ``module:attribute``.
        built_in: names that need no registration; told if the name is unknown.

    Raises:
        InvalidRequestError: no distribution or several registered the name, or it cannot be imported or called.
    """
    target, plugin = _found(group, name, built_in)
    if not callable(plugin):
        raise InvalidRequestError(f"{_NOUNS.get(group, group)} {name!r}: {target} is not callable")
    return plugin  # type: ignore[no-any-return]  # callable() was checked


def resolve_text(group: str, name: str) -> str:
    """Import the text that a name refers to.

    Raises:
        InvalidRequestError: as for ``resolve``; or it is not a text.
    """
    target, text = _found(group, name)
    if not isinstance(text, str):
        raise InvalidRequestError(f"{_NOUNS.get(group, group)} {name!r}: {target} is not a text")
    return text


def _found(group: str, name: str, built_in: Iterable[str] = ()) -> tuple[str, Any]:
    """Return the object of a name, after its place as ``module:attribute``."""
    noun = _NOUNS.get(group, group)
    target = name
    if ":" not in name:
        found = sorted({point.value for point in entry_points(group=group) if point.name == name})
        if not found:
            names = sorted({*known_names(group), *built_in})
            known = ", ".join(names) or "none"
            raise InvalidRequestError(
                f"no {noun} is called {name!r}; registered: {known}; one that is not registered is written as "
                f"module:attribute{suggest(name, names)}"
            )
        if len(found) > 1:
            raise InvalidRequestError(f"{noun} {name!r} is registered more than once; write one of {', '.join(found)}")
        (target,) = found
    return target, _imported(target, f"{noun} {name!r}")


def _imported(target: str, what: str) -> Any:
    module_name, _, path = target.partition(":")
    if not module_name or not path:
        raise InvalidRequestError(f"{what}: write module:attribute")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # a user's module may raise anything while it is imported
        raise InvalidRequestError(f"{what}: cannot import {module_name}: {type(error).__name__}: {error}") from error
    try:
        return reduce(getattr, path.split("."), module)
    except AttributeError as error:
        raise InvalidRequestError(f"{what}: {module_name} has no {path}") from error
