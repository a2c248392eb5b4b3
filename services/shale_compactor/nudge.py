"""A way for two loops of one process to wake each other instead of waiting for a timer."""

import anyio


class Nudge:
    """Remembers that somebody called until the next wait ends."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def call(self) -> None:
        """End the current wait, or the next one at once."""
        self._event.set()

    async def wait(self, timeout_s: float) -> bool:
        """Return when called, or after the time; tells whether it was called."""
        with anyio.move_on_after(timeout_s):
            await self._event.wait()
        called = self._event.is_set()
        if called:
            self._event = anyio.Event()
        return called
