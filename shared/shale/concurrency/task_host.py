"""A task group that lives from open to close, even if different tasks call them.

``async with`` would tie open and close to one task and its cancel scopes, but a handle may be opened in one task and
closed in another (``db = await Db.open(...)``).  So a separate task holds the group; it is the only task of the library
that no task group started.
"""

import asyncio
from collections.abc import Callable

import anyio
from anyio.abc import TaskGroup

from shale.concurrency.first_error import first_error


class TaskHost:
    """Holds a task group open until ``stop``."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._group: TaskGroup | None = None

    @property
    def group(self) -> TaskGroup:
        """The task group of the handle."""
        assert self._group is not None, "not started"
        return self._group

    async def start(self, on_failure: Callable[[BaseException], None] | None = None) -> TaskGroup:
        """Open the group.

        Args:
            on_failure: called at once with the first error of a task, which ends all tasks of the group.  The handle
                records the error and raises it in later calls.
        """
        ready = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._hold(ready, on_failure), name=self._name)
        await ready.wait()
        return self.group

    async def stop(self) -> None:
        """Cancel all tasks and wait until they have ended; a second call does nothing."""
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
