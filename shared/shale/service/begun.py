"""Calls that mostly need no wait: begun first, and given a time limit only if they do wait.

A time limit costs more than what many requests do; a body that has arrived, or a write for which there is room, needs
none.
"""

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar, cast

import anyio

T = TypeVar("T")


async def within(limit_s: float, call: Coroutine[Any, Any, T], too_late: Callable[[], Exception]) -> T:
    """The result of ``call``, which must not enter a cancel scope or task group that it leaves only after waiting.

    Args:
        limit_s: how long it may wait.
        call: what is done.
        too_late: makes the error that is raised when it took longer; then ``call`` was cancelled.
    """
    try:
        waits_for = call.send(None)
    except StopIteration as done:
        return cast("T", done.value)
    with anyio.move_on_after(limit_s) as scope:
        return await _Rest(call, waits_for)
    assert scope.cancelled_caught
    raise too_late()


class _Rest(Generic[T]):
    """A coroutine that was begun and waits: awaiting this goes on with it."""

    __slots__ = ("_call", "_waits_for")

    def __init__(self, call: Coroutine[Any, Any, T], waits_for: Any) -> None:
        self._call = call
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, T]:
        waits_for = self._waits_for
        while True:
            try:
                sent = yield waits_for
            except BaseException as error:  # noqa: BLE001 - a cancellation above all: it is the call's to deal with
                step = self._thrown(error)
            else:
                step = self._sent(sent)
            is_over, waits_for = step
            if is_over:
                return cast("T", waits_for)

    def _sent(self, value: Any) -> tuple[bool, Any]:
        try:
            return False, self._call.send(value)
        except StopIteration as done:
            return True, done.value

    def _thrown(self, error: BaseException) -> tuple[bool, Any]:
        try:
            return False, self._call.throw(error)
        except StopIteration as done:
            return True, done.value
