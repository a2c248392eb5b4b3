"""Bytes that concurrent work shares: a taker waits until there is room, in the order of the requests."""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import anyio

from shale.errors import ResponseTooLarge, UnavailableError

WAIT_MAX_S = 30.0


class ByteBudget:
    """A number of bytes; ``used_bytes`` of them are taken.

    One share may be larger than the whole budget: it waits until all others are released, so that no value is too large
    to be read at all.

    Args:
        capacity_bytes: how many bytes there are.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self._waiting: deque[tuple[int, anyio.Event]] = deque()

    @property
    def is_contended(self) -> bool:
        """Whether a request waits for room."""
        return bool(self._waiting)

    @property
    def free_bytes(self) -> int:
        """The bytes that are not taken."""
        return max(0, self.capacity_bytes - self.used_bytes)

    def try_take(self, size_bytes: int) -> bool:
        """Take bytes if there is room and no earlier request waits; return whether they were taken."""
        if self._waiting or not self._fits(size_bytes):
            return False
        self.used_bytes += size_bytes
        return True

    def note(self, size_bytes: int) -> None:
        """Count bytes that are in use already; there may be more of them than the budget has."""
        self.used_bytes += size_bytes

    async def take(self, size_bytes: int) -> None:
        """Take bytes; wait until there is room.  A cancelled call has taken none."""
        if self.try_take(size_bytes):
            return
        request = (size_bytes, anyio.Event())
        self._waiting.append(request)
        try:
            await request[1].wait()
        except BaseException:
            if request[1].is_set():
                self.give_back(size_bytes)
            else:
                self._waiting.remove(request)
                self._admit()
            raise

    def give_back(self, size_bytes: int) -> None:
        """Give bytes back, and admit those that wait."""
        assert 0 <= size_bytes <= self.used_bytes
        self.used_bytes -= size_bytes
        self._admit()

    def share(self) -> "ByteShare":
        """Return a share of this budget, which is empty."""
        return ByteShare(self)

    def _fits(self, size_bytes: int) -> bool:
        return self.used_bytes + size_bytes <= self.capacity_bytes or not self.used_bytes

    def _admit(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            size_bytes, admitted = self._waiting.popleft()
            self.used_bytes += size_bytes
            admitted.set()


class ByteShare:
    """What one piece of work has taken; leaving the ``with`` block gives it back."""

    __slots__ = ("_budget", "size_bytes")

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self.size_bytes = 0

    async def take(self, size_bytes: int) -> None:
        """Take more bytes; wait until there is room."""
        await self._budget.take(size_bytes)
        self.size_bytes += size_bytes

    def try_take(self, size_bytes: int) -> bool:
        """Take more bytes if there is room and no earlier request waits; return whether they were taken."""
        is_taken = self._budget.try_take(size_bytes)
        self.size_bytes += size_bytes if is_taken else 0
        return is_taken

    def reduce_to(self, size_bytes: int) -> None:
        """Give back all but so many bytes."""
        if size_bytes < self.size_bytes:
            given, self.size_bytes = self.size_bytes - size_bytes, size_bytes
            self._budget.give_back(given)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.reduce_to(0)


class TaskShares:
    """Shares of a budget that belong to tasks: work deep in a task takes them, and the end of the task releases them.

    Args:
        budget: where the bytes are from.
        wait_max_s: the longest wait: the client may be gone meanwhile, and others of a queue wait for this one.
    """

    def __init__(self, budget: ByteBudget, *, wait_max_s: float = WAIT_MAX_S) -> None:
        self._budget = budget
        self._wait_max_s = wait_max_s
        self._shares: dict[asyncio.Task[Any], ByteShare] = {}
        self._not_waiting: set[asyncio.Task[Any]] = set()

    @property
    def is_contended(self) -> bool:
        """Whether a task waits for bytes."""
        return self._budget.is_contended

    @property
    def held_bytes(self) -> int:
        """The bytes of the present task."""
        share = self._shares.get(_current_task())
        return 0 if share is None else share.size_bytes

    async def take(self, size_bytes: int) -> None:
        """Take bytes for the present task, instead of those that it has; wait until there is room.

        A task that waits has none: two tasks that each kept a part would wait for each other.

        Raises:
            UnavailableError: there was no room for ``wait_max_s``.
            ResponseTooLarge: there is no room, and the task does not wait.
        """
        task = _current_task()
        self._release(task)
        share = self._budget.share()
        if not share.try_take(size_bytes):
            if task in self._not_waiting:
                raise ResponseTooLarge(f"no memory for {size_bytes} bytes of values at present")
            with anyio.move_on_after(self._wait_max_s) as scope:
                await share.take(size_bytes)
            if scope.cancelled_caught:
                raise UnavailableError(f"no memory for {size_bytes} bytes of values within {self._wait_max_s:g} s")
        self._shares[task] = share
        task.add_done_callback(self._release)

    @contextmanager
    def without_waiting(self) -> Iterator[None]:
        """Let ``take`` of the present task raise ``ResponseTooLarge`` instead of waiting for room."""
        task = _current_task()
        self._not_waiting.add(task)
        try:
            yield
        finally:
            self._not_waiting.discard(task)

    def detach(self) -> ByteShare:
        """Return the share of the present task, which no longer releases it; an empty one if it has none."""
        task = _current_task()
        task.remove_done_callback(self._release)
        return self._shares.pop(task, None) or self._budget.share()

    def release(self) -> None:
        """Give back the bytes of the present task."""
        if self._shares:
            self._release(_current_task())

    def _release(self, task: "asyncio.Task[Any]") -> None:
        share = self._shares.pop(task, None)
        if share is not None:
            task.remove_done_callback(self._release)
            share.reduce_to(0)


def _current_task() -> "asyncio.Task[Any]":
    task = asyncio.current_task()
    assert task is not None
    return task
