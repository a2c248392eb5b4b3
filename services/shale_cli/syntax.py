"""Is a command line one that a command takes?  Asked before typer reads values, for which it loads pydantic.

A slip of the finger is so told in half the time.  What is refused here, typer would refuse in the same words.
"""

from collections.abc import Sequence
from typing import Any

from shale_cli.walk import command_below


def require_syntax(command: Any, context: Any, words: Sequence[str]) -> None:
    """Return if the words name a command, and its options and arguments are those that it has.

    Raises:
        UsageError: of typer's, which shows it.
    """
    found = command_below(command, context, words)
    if found.unknown is not None:
        found.command.resolve_command(found.context, list(found.rest))
    elif hasattr(found.command, "commands"):
        if not found.rest:
            found.command.parse_args(found.context, [])
    else:
        _require_parameters(found.command, found.context, found.rest)


def _require_parameters(command: Any, context: Any, words: Sequence[str]) -> None:
    given, left, _ = command.make_parser(context).parse_args(args=list(words))
    for each in command.get_params(context):
        if each.required and given.get(each.name) in (None, ()) and each.default is None and not each.envvar:
            context.fail(f"Missing {each.param_type_name} {each.get_error_hint()}.")
    if left and not context.allow_extra_args:
        context.fail(f"Got unexpected extra argument(s) ({' '.join(left)})")
