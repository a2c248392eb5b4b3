"""A task group that lives between open and close, whichever tasks call these.

``async with`` would tie both to one task and to its cancel scopes, but a handle may be opened in one place and closed
in another (``db = await Db.open(...)``).  So one task of its own holds the group; it is the only task in the library
that no group started.
"""

import asyncio
from collections.abc import Callable

import anyio
from anyio.abc import TaskGroup


class TaskHost:
    """Holds a task group open until ``stop``."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._group: TaskGroup | None = None

    @property
    def group(self) -> TaskGroup:
        """Where the handle's tasks are started."""
        assert self._group is not None, "not started"
        return self._group

    async def start(self, on_failure: Callable[[BaseException], None] | None = None) -> TaskGroup:
        """Open the group.

        Args:
            on_failure: called at once when a task of the group ends with an error, which ends them all; the handle
                marks itself as failed then, and whoever uses it is told.  A handle that is dropped without being
                closed is therefore no error that nobody heard of.
        """
        ready = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._hold(ready, on_failure), name=self._name)
        await ready.wait()
        return self.group

    async def stop(self) -> None:
        """Cancel what still runs and return when all of it has ended; the second call does nothing."""
        task, self._task = self._task, None
        if task is None:
            return
        self._stop.set()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # has been told to on_failure; retrieving it keeps the loop from reporting it again

    async def _hold(self, ready: asyncio.Event, on_failure: Callable[[BaseException], None] | None) -> None:
        try:
            async with anyio.create_task_group() as group:
                self._group = group
                ready.set()
                await self._stop.wait()
                group.cancel_scope.cancel()
        except BaseExceptionGroup as errors:
            if on_failure is None:
                raise
            on_failure(first_error(errors))


def first_error(errors: BaseException) -> BaseException:
    """The first plain error inside exception groups."""
    while isinstance(errors, BaseExceptionGroup):
        errors = errors.exceptions[0]
    return errors
