"""A blocking call of Spark's Python interface in a thread: it ends early only when Spark is interrupted."""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import anyio
import anyio.to_thread

T = TypeVar("T")
_INTERRUPT_INTERVAL_S = 0.5


class BlockingCall(Generic[T]):
    """One call.  Its error is kept for ``result``, because it may be a consequence of the interrupt.

    Attributes:
        ended: set once the call has returned, has raised, or was abandoned.
        error: what the call has raised.
    """

    def __init__(self, call: Callable[[], T]) -> None:
        self.ended = anyio.Event()
        self.error: Exception | None = None
        self._call = call
        self._results: list[T] = []
        self._thread = anyio.CancelScope(shield=True)

    async def run(self) -> None:
        """Make the call; a cancellation does not end it."""
        with self._thread:
            try:
                self._results.append(await anyio.to_thread.run_sync(self._call, abandon_on_cancel=True))
            except Exception as error:  # noqa: BLE001 - py4j, Spark and sockets raise many kinds; ``result`` raises it
                self.error = error
            finally:
                self.ended.set()

    async def interrupt_until_ended(self, interrupt: Callable[[], object]) -> None:
        """Interrupt Spark until the call has ended; repeated, because Spark ignores an interrupt before its job."""
        while not self.ended.is_set():
            await anyio.to_thread.run_sync(interrupt, abandon_on_cancel=True)
            with anyio.move_on_after(_INTERRUPT_INTERVAL_S):
                await self.ended.wait()

    def abandon(self) -> None:
        """Wait for the thread no longer: ``run`` returns."""
        self._thread.cancel()

    def result(self) -> T:
        """Return what the call returned, or raise what it raised; not for a call that was abandoned."""
        if self.error is not None:
            raise self.error
        return self._results[0]


async def run_until(
    call: BlockingCall[T], until: Callable[[], Awaitable[object]], stop: Callable[[], Awaitable[object]]
) -> None:
    """Run a call until ``until`` returns or this is cancelled; then ``stop`` ends it; a call that runs on is abandoned.

    A cancellation does not reach ``stop``.
    """
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call.run, name="spark")
        try:
            await until()
        finally:
            with anyio.CancelScope(shield=True):
                await stop()
            call.abandon()
