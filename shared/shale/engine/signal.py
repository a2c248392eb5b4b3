"""A wake-up call that any number of tasks can wait for, again and again."""

import anyio


class Signal:
    """``wait`` returns at the next ``notify``.  Tests of a condition and waiting happen between the same two awaits."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event: anyio.Event | None = None

    def notify(self) -> None:
        """Wake everybody who waits now."""
        if self._event is not None:
            self._event.set()
            self._event = None

    async def wait(self) -> None:
        """Wait for the next call."""
        if self._event is None:
            self._event = anyio.Event()
        await self._event.wait()

    async def wait_for(self, seconds: float) -> bool:
        """Wait for the next call, but not longer than this; whether it came."""
        with anyio.move_on_after(seconds):
            await self.wait()
            return True
        return False
