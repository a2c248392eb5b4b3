"""A wake-up call for any number of waiting tasks, which can be repeated."""

import anyio


class Signal:
    """``wait`` returns at the next ``notify``.  Test the condition and call ``wait`` without an await in between."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event: anyio.Event | None = None

    def notify(self) -> None:
        """Wake all tasks that wait now."""
        if self._event is not None:
            self._event.set()
            self._event = None

    async def wait(self) -> None:
        """Wait for the next ``notify``."""
        if self._event is None:
            self._event = anyio.Event()
        await self._event.wait()

    async def wait_for(self, seconds: float) -> bool:
        """Wait for the next ``notify`` or until the time is over; return whether it was notified."""
        with anyio.move_on_after(seconds):
            await self.wait()
            return True
        return False


class WakeEvent:
    """A signal for one waiter that is not lost if no task waits: it stays set until the next ``wait_for`` returns."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = anyio.Event()

    def notify(self) -> None:
        """End the current or the next ``wait_for`` at once."""
        self._event.set()

    async def wait_for(self, seconds: float) -> bool:
        """Wait for ``notify``, at most ``seconds``; return whether it was called, and reset."""
        with anyio.move_on_after(seconds):
            await self._event.wait()
        is_set = self._event.is_set()
        if is_set:
            self._event = anyio.Event()
        return is_set
