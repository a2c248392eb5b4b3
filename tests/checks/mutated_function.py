"""A pytest plugin that breaks one function: ``SHALE_MUTATED=shale.x.y pytest -p tests.checks.mutated_function``.

The code of the function is replaced, not its name, so modules that have imported it before are affected as well.
"""

import inspect
import os
from collections.abc import AsyncIterator, Callable, Iterator
from types import FunctionType
from typing import Any

from tests.checks.design_table import function_at

VARIABLE = "SHALE_MUTATED"


def _raise(*_: Any, **__: Any) -> None:
    raise AssertionError("mutated")


async def _raise_async(*_: Any, **__: Any) -> None:
    raise AssertionError("mutated")


def _raise_in_iterator(*_: Any, **__: Any) -> Iterator[None]:
    yield from ()
    raise AssertionError("mutated")


async def _raise_in_async_iterator(*_: Any, **__: Any) -> AsyncIterator[None]:
    for nothing in ():
        yield nothing
    raise AssertionError("mutated")


def mutate(function: FunctionType) -> None:
    """Let every call of the function fail."""
    if inspect.isasyncgenfunction(function):
        broken: Callable[..., Any] = _raise_in_async_iterator
    elif inspect.iscoroutinefunction(function):
        broken = _raise_async
    elif inspect.isgeneratorfunction(function):
        broken = _raise_in_iterator
    else:
        broken = _raise
    function.__code__ = broken.__code__.replace(co_freevars=function.__code__.co_freevars)


def pytest_configure() -> None:
    """Break the function that the environment names."""
    if path := os.environ.get(VARIABLE):
        mutate(function_at(path))
