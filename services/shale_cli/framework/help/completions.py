"""Completions of a command line: nouns, verbs, options, and values of enumerations."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from shale_cli.framework.command_resolver import ResolvedCommand, find_command
from shale_cli.framework.daemons import DAEMONS
from shale_cli.framework.global_options import OPTIONS, GlobalOption, option_of, split

_PROCESS = "A daemon with its own options."
_OTHERS = {"demo": "A demonstration on real data."}


class Completion(NamedTuple):
    """A completed word and its description."""

    word: str
    about: str = ""


def completions(words: Sequence[str], begun: str) -> list[Completion]:
    """Return the completions of ``begun``; none if only the shell can complete it, such as file names.

    Args:
        words: the words before it, without the program name.
        begun: the word that is being typed.
    """
    return [each for each in _all(words, begun) if each.word.startswith(begun)]


def _all(words: Sequence[str], begun: str) -> Iterator[Completion]:
    from shale_cli.framework.app import make_app

    given = split(words)
    if "--" in words:
        return
    if given.waiting is not None:
        yield from map(Completion, given.waiting.choices)
        return
    name, equals, _ = begun.partition("=")
    option = option_of(name, before_noun=given.noun is None) if equals else None
    if option is not None:
        yield from (Completion(f"{name}={choice}") for choice in option.choices)
        return
    if given.noun in DAEMONS and not _is_noun_too(given.noun):
        return
    found = find_command(make_app(given.noun), given.rest)
    if found.unknown is not None:
        return
    yield from _of_command(found, begun, at_the_start=given.noun is None)


def _of_command(found: ResolvedCommand, begun: str, *, at_the_start: bool) -> Iterator[Completion]:
    waiting = _waiting(found)
    if waiting is not None:
        yield from _values(waiting, found.context)
    elif begun.startswith("-"):
        yield from _options(found)
        yield from (Completion(each.name, each.about) for each in OPTIONS if _may_stand(each, at_the_start))
    elif hasattr(found.command, "commands"):
        yield from (Completion(name, verb.get_short_help_str(80)) for name, verb in found.verbs.items())
        if at_the_start:
            yield from (Completion(name, _PROCESS) for name in DAEMONS if name not in found.verbs)
            yield from (Completion(*each) for each in _OTHERS.items())
    else:
        arguments = [each for each in found.command.params if each.param_type_name == "argument"]
        taken = sum(not word.startswith("-") for word in found.rest)
        if arguments:
            yield from _values(arguments[min(taken, len(arguments) - 1)], found.context)


def _options(found: ResolvedCommand) -> Iterator[Completion]:
    for each in found.command.get_params(found.context):
        if each.param_type_name == "option" and not getattr(each, "hidden", False):
            yield from (Completion(name, each.help or "") for name in each.opts if name.startswith("--"))


def _waiting(found: ResolvedCommand) -> Any | None:
    """Return the option of the last word, if it needs a value."""
    last = found.rest[-1] if found.rest else ""
    for each in found.command.params:
        if each.param_type_name == "option" and last in each.opts and not each.is_flag:
            return each
    return None


def _values(parameter: Any, context: Any) -> Iterator[Completion]:
    """Yield the values of an enumeration."""
    yield from (Completion(each.value, each.help or "") for each in parameter.shell_complete(context, ""))


def _may_stand(option: GlobalOption, at_the_start: bool) -> bool:
    return option_of(option.name, before_noun=at_the_start) is not None


def _is_noun_too(name: str) -> bool:
    from shale_cli.framework.registry import NOUNS

    return name in NOUNS
