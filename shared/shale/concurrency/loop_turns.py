"""Work that is cut into short steps, of which one runs in each round of the event loop.

Between two steps everything else that is ready runs.  Without turns a hundred connections that each have a step ready
run all of them in one round, and every other request waits for the sum.
"""

import asyncio
from collections import deque
from collections.abc import Callable

import anyio


class LoopTurns:
    """A queue of steps, in the order of arrival; for one event loop."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], object]] = deque()

    def add(self, step: Callable[[], object]) -> None:
        """Call ``step``, which must not raise, in a later round of the event loop."""
        self._waiting.append(step)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._run)

    async def wait(self) -> None:
        """Wait for the turn of the caller; one that was cancelled meanwhile leaves its turn unused."""
        turn = anyio.Event()
        self.add(turn.set)
        await turn.wait()

    def _run(self) -> None:
        step = self._waiting.popleft()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._run)
        step()
