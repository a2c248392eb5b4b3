"""Waits for conditions in tasks and threads, with time limits for a busy machine."""

from collections.abc import Callable

import anyio

LIMIT_S = 60.0


async def until(is_so: Callable[[], bool]) -> None:
    """Return once ``is_so``; fail after a time limit."""
    with anyio.fail_after(LIMIT_S):
        while not is_so():  # noqa: ASYNC110 - what is waited for has no event
            await anyio.sleep(0.001)
