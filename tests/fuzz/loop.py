"""One event loop for all inputs of a process, and what lives on it."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


@cache
def _stack() -> AsyncExitStack:
    return AsyncExitStack()


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run until the work is done."""
    return _loop().run_until_complete(work)


def kept(make: Callable[[], AbstractAsyncContextManager[T]]) -> Callable[[], Awaitable[T]]:
    """Return a function that opens something once, which stays open until the process ends."""
    found: list[T] = []

    async def get() -> T:
        if not found:
            found.append(await _stack().enter_async_context(make()))
        return found[0]

    return get
