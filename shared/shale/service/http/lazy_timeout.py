"""A timeout that is set up only if the call really waits.

A cancel scope costs more than the work of many requests, and most calls finish without waiting: a body that has
already arrived needs no timeout.
"""

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar, cast

import anyio

T = TypeVar("T")


async def run_with_lazy_timeout(limit_s: float, call: Coroutine[Any, Any, T], on_timeout: Callable[[], Exception]) -> T:
    """Run ``call`` and limit the time that it waits.

    ``call`` must not enter a cancel scope or task group before its first wait and leave it after that wait: the
    start runs outside the timeout's own scope.

    Args:
        limit_s: the longest wait in seconds.
        call: the coroutine to run.
        on_timeout: makes the error to raise after the limit; ``call`` has been cancelled by then.
    """
    try:
        waits_for = call.send(None)
    except StopIteration as done:
        return cast("T", done.value)
    with anyio.move_on_after(limit_s) as scope:
        return await _Rest(call, waits_for)
    assert scope.cancelled_caught
    raise on_timeout()


class _Rest(Generic[T]):
    """The rest of a coroutine that has been started; awaiting this object resumes it."""

    __slots__ = ("_call", "_waits_for")

    def __init__(self, call: Coroutine[Any, Any, T], waits_for: Any) -> None:
        self._call = call
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, T]:
        waits_for = self._waits_for
        while True:
            try:
                sent = yield waits_for
            except BaseException as error:  # noqa: BLE001 - the call handles every error, above all its cancellation
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
