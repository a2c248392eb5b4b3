"""How long a daemon serves a database: until it is told to stop, or the database cannot be served any more."""

from collections.abc import Awaitable, Callable

import anyio

from shale.errors import ShaleError


async def until_end(draining: anyio.Event, failed: Callable[[], Awaitable[ShaleError]]) -> ShaleError | None:
    """Wait for the stop, or for the failure of what is served, which is returned.

    Args:
        draining: set when the process is to stop.
        failed: waits for the failure.
    """
    problem: ShaleError | None = None

    async def watch(scope: anyio.CancelScope) -> None:
        nonlocal problem
        problem = await failed()
        scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch, tasks.cancel_scope, name="failure")
        await draining.wait()
        tasks.cancel_scope.cancel()
    return problem
