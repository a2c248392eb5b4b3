"""Several requests at once, with a bound, and errors as if they had been made one by one."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import anyio

from shale.errors import ShaleError

T = TypeVar("T")

REQUESTS_MAX = 32


async def gather(works: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """The results in the order of ``works``; the first error cancels the rest and is raised as it is."""
    if len(works) == 1:
        return [await works[0]()]
    results: dict[int, T] = {}
    errors: list[ShaleError] = []
    limiter = anyio.CapacityLimiter(REQUESTS_MAX)

    async def run(index: int) -> None:
        async with limiter:
            try:
                results[index] = await works[index]()
            except ShaleError as error:
                errors.append(error)
                tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        for index in range(len(works)):
            tasks.start_soon(run, index)
    if errors:
        raise errors[0]
    return [results[index] for index in range(len(works))]
