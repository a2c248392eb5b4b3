"""Runs several requests concurrently, with a bound, and raises errors as if they had run one by one."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import anyio
import anyio.lowlevel

from shale.errors import ShaleError

T = TypeVar("T")

REQUESTS_MAX = 32


async def gather(works: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """Return the results in the order of ``works``; the first error cancels the rest and is raised unwrapped."""
    if len(works) == 1:
        return [await works[0]()]
    pending = list(works)
    results: dict[int, T] = {}
    errors: list[ShaleError] = []
    waiting = iter(range(len(works)))
    cancelled = anyio.get_cancelled_exc_class()

    async def run() -> None:
        for index in waiting:  # shared: a free task takes the next index
            try:
                await anyio.lowlevel.checkpoint_if_cancelled()
                results[index] = await pending[index]()
            except ShaleError as error:
                errors.append(error)
                tasks.cancel_scope.cancel()
            except cancelled as cancellation:
                # The task group keeps it in a cycle, and its traceback would keep the frames of the work.
                cancellation.__traceback__ = None
                raise

    try:
        async with anyio.create_task_group() as tasks:
            for _ in range(min(len(works), REQUESTS_MAX)):
                tasks.start_soon(run)
    finally:
        # The cycle of a task that was cancelled has the frame of ``run``, too, which reaches both.
        pending.clear()
        if len(results) < len(works):
            results.clear()
    if errors:
        error = errors[0]
        errors.clear()
        try:
            raise error
        finally:
            # Its traceback has this frame: a cycle would keep what the works hold, such as blocks, for minutes.
            del error
    return [results[index] for index in range(len(works))]
