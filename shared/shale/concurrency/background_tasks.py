"""Work that a handle's task group does in the background, as long as the handle lets it."""

from collections.abc import Callable, Coroutine
from typing import Any

from anyio.abc import TaskGroup


class BackgroundTasks:
    """Starts tasks in the task group of a handle, from ``open`` to ``close``.

    The handle gives it to its parts when it makes them, which is before it has a task group, and closes it before the
    group ends.
    """

    def __init__(self) -> None:
        self._group: TaskGroup | None = None

    @property
    def is_open(self) -> bool:
        """Whether tasks can be started."""
        return self._group is not None

    def open(self, group: TaskGroup) -> None:
        """Start tasks in this group from now on."""
        self._group = group

    def close(self) -> None:
        """Start no more tasks: the group is about to end."""
        self._group = None

    def start(self, work: Callable[[], Coroutine[Any, Any, object]], *, name: str) -> None:
        """Start the work now; only while this is open."""
        assert self._group is not None, "not open"
        self._group.start_soon(work, name=name)
