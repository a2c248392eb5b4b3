"""Prefetches of scans, in a task group that outlives the scans: a scan is a plain iterator and owns no tasks."""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import anyio
from anyio.abc import TaskGroup

from shale.errors import ClosedError, ShaleError

T = TypeVar("T")

READ_AHEAD_BYTES = 4 << 20
"""Default size of one read."""


class Fetch(Generic[T]):
    """One prefetch: holds its result or error."""

    __slots__ = ("_done", "_error", "_result")

    def __init__(self) -> None:
        self._done = anyio.Event()
        self._result: list[T] = []
        self._error: ShaleError | None = None

    async def run(self, work: Callable[[], Awaitable[T]]) -> None:
        """Do the work and keep its ``ShaleError`` for the waiter; any other error ends the task group."""
        try:
            self._result.append(await work())
        except ShaleError as error:
            self._error = error
        finally:
            self._done.set()

    @property
    def is_done(self) -> bool:
        """Whether ``result`` returns at once; may be read in any thread."""
        return self._done.is_set()

    async def wait(self) -> T:
        """Wait for the work and return its result.

        Raises:
            ClosedError: the task group was cancelled before the work was done.
        """
        await self._done.wait()
        return self.result()

    def result(self) -> T:
        """Return the result of work that is done.

        Raises:
            ClosedError: the task group was cancelled before the work was done.
        """
        if self._error is not None:
            error, self._error = self._error, None
            try:
                raise error
            finally:
                del error  # its traceback has this frame: a cycle would keep what the work holds
        if not self._result:
            raise ClosedError("closed while a scan was reading ahead")
        return self._result[0]


class ReadAhead:
    """Starts prefetches in the task group of a handle, which closes this object before it ends the group."""

    def __init__(self, tasks: TaskGroup) -> None:
        self._tasks = tasks
        self._refusal: ShaleError | None = None

    def start(self, work: Callable[[], Awaitable[T]]) -> Fetch[T]:
        """Start the work now.

        Raises:
            ShaleError: the one that ``close`` got.
        """
        if self._refusal is not None:
            raise self._refusal
        fetch: Fetch[T] = Fetch()
        self._tasks.start_soon(fetch.run, work, name="read-ahead")
        return fetch

    def close(self, error: ShaleError | None = None) -> None:
        """Refuse new prefetches; scans that need one fail with the first error, by default ``ClosedError``."""
        if self._refusal is None:
            self._refusal = error if error is not None else ClosedError("the database is closed")
