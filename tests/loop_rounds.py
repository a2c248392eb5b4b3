"""Count the rounds of the event loop that other tasks get."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel


class LoopRounds:
    """The rounds in which another task ran."""

    count = 0

    async def run(self) -> None:
        """Count until cancelled."""
        while True:
            await anyio.lowlevel.checkpoint()
            self.count += 1


@asynccontextmanager
async def counted_rounds() -> AsyncIterator[LoopRounds]:
    """Count the rounds during the body."""
    rounds = LoopRounds()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(rounds.run)
        yield rounds
        tasks.cancel_scope.cancel()
