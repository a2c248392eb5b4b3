"""Passes values that need no conversion, for which typer would import pydantic.

Typer converts each value, also a missing one, by an adapter that pydantic makes.  Most values of commands are text or
missing, and stay as they are.
"""

from typing import Any

from shale_cli.framework.command_resolver import find_subcommand

_SCALARS = (str, int, float)
_DIGITS_MAX = 18


def skip_conversions(command: Any, context: Any, words: list[str]) -> None:
    """Let the parameters of a command and of the groups above it convert only what is not yet of their type."""
    within = find_subcommand(command, context, words).context
    while within is not None:
        for each in within.command.get_params(within):
            if hasattr(each, "get_runtime_param") and hasattr(each, "type_descriptor"):
                each.get_runtime_param = _PlainValues(each)
        within = within.parent


class _PlainValues:
    """Takes the place of a parameter's conversion, and calls it only for other values.

    Args:
        parameter: a parameter of typer.
    """

    def __init__(self, parameter: Any) -> None:
        self._descriptor = parameter.type_descriptor
        self._conversion = parameter.get_runtime_param

    def __call__(self) -> "_PlainValues":
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value of the parameter: typer's result, without its adapter where that is certain."""
        if param.multiple and value is None:
            return None
        if param.multiple or param.nargs != 1:
            return self._conversion().coerce(value, param=param, ctx=ctx)
        found = self._number(value)
        if found is None and value is not None and not self._is_plain(value):
            return self._conversion().coerce(value, param=param, ctx=ctx)
        return value if found is None else found

    def _is_plain(self, value: Any) -> bool:
        """Whether the value has the type of the parameter, which checks nothing else."""
        info = self._descriptor.parameter_info
        is_checked = info.parser is not None or info.min is not None or info.max is not None
        return self._descriptor.annotation in _SCALARS and type(value) is self._descriptor.annotation and not is_checked

    def _number(self, value: Any) -> int | None:
        """Return the integer that decimal digits mean; ``None`` for other values, and if typer would refuse it."""
        info = self._descriptor.parameter_info
        if self._descriptor.annotation is not int or info.parser is not None or not isinstance(value, str):
            return None
        if not (value.isascii() and value.isdigit() and len(value) <= _DIGITS_MAX):
            return None
        number = int(value)
        is_in_range = (info.min is None or info.min <= number) and (info.max is None or number <= info.max)
        return number if is_in_range else None
