"""What may stand at the end of a command line: nouns, verbs, options, and values that there are a few of."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from shale_cli.__main__ import PROCESSES
from shale_cli.global_options import OPTIONS, GlobalOption, option_of, split
from shale_cli.walk import Found, command_at

_PROCESS = "A daemon, with options of its own."
_OTHERS = {"demo": "Everything at work on real data."}


class Offer(NamedTuple):
    """A whole word, and what it means."""

    word: str
    about: str = ""


def offers(words: Sequence[str], begun: str) -> list[Offer]:
    """What completes ``begun``; nothing where only the shell can know, as for files.

    Args:
        words: what stands before it, without the name of the program.
    """
    return [each for each in _all(words, begun) if each.word.startswith(begun)]


def _all(words: Sequence[str], begun: str) -> Iterator[Offer]:
    from shale_cli.app import make_app

    given = split(words)
    if "--" in words:
        return
    if given.waiting is not None:
        yield from map(Offer, given.waiting.choices)
        return
    name, equals, _ = begun.partition("=")
    option = option_of(name, before_the_noun=given.noun is None) if equals else None
    if option is not None:
        yield from (Offer(f"{name}={choice}") for choice in option.choices)
        return
    if given.noun in PROCESSES and not _is_noun_too(given.noun):
        return
    found = command_at(make_app(given.noun), given.rest)
    if found.unknown is not None:
        return
    yield from _of_command(found, begun, at_the_start=given.noun is None)


def _of_command(found: Found, begun: str, *, at_the_start: bool) -> Iterator[Offer]:
    waiting = _waiting(found)
    if waiting is not None:
        yield from _values(waiting, found.context)
    elif begun.startswith("-"):
        yield from _options(found)
        yield from (Offer(each.name, each.about) for each in OPTIONS if _may_stand(each, at_the_start))
    elif hasattr(found.command, "commands"):
        yield from (Offer(name, verb.get_short_help_str(80)) for name, verb in found.verbs.items())
        if at_the_start:
            yield from (Offer(name, _PROCESS) for name in PROCESSES if name not in found.verbs)
            yield from (Offer(*each) for each in _OTHERS.items())
    else:
        arguments = [each for each in found.command.params if each.param_type_name == "argument"]
        taken = sum(not word.startswith("-") for word in found.rest)
        if arguments:
            yield from _values(arguments[min(taken, len(arguments) - 1)], found.context)


def _options(found: Found) -> Iterator[Offer]:
    for each in found.command.get_params(found.context):
        if each.param_type_name == "option" and not getattr(each, "hidden", False):
            yield from (Offer(name, each.help or "") for name in each.opts if name.startswith("--"))


def _waiting(found: Found) -> Any | None:
    """The option that the last word names, if a value has to follow it."""
    last = found.rest[-1] if found.rest else ""
    for each in found.command.params:
        if each.param_type_name == "option" and last in each.opts and not each.is_flag:
            return each
    return None


def _values(parameter: Any, context: Any) -> Iterator[Offer]:
    """The values of an enumeration."""
    yield from (Offer(each.value, each.help or "") for each in parameter.shell_complete(context, ""))


def _may_stand(option: GlobalOption, at_the_start: bool) -> bool:
    return option_of(option.name, before_the_noun=at_the_start) is not None


def _is_noun_too(name: str) -> bool:
    from shale_cli.commands import NOUNS

    return name in NOUNS
