"""Backpressure: writers wait in their own task while too much is in memory (docs/protocol.md 4.9)."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel

from shale.engine.progress import Progress, raise_again
from shale.env import Env
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger

if TYPE_CHECKING:
    from shale.errors import ClosedError

_LOOK_AGAIN_S = 30.0
log = get_logger("writer")


class Pressure:
    """Decides whether a write may go on.

    Args:
        limit_bytes: ``max_unflushed_bytes``.
        unflushed_bytes: what is in memory now.
        can_shrink: whether something in memory is on its way to the store; else nothing would wake a waiter.
        progress: wakes waiters, and tells whether the writer still is one.
    """

    __slots__ = ("_can_shrink", "_env", "_limit_bytes", "_progress", "_unflushed_bytes", "closed", "waits")

    def __init__(
        self,
        limit_bytes: int,
        unflushed_bytes: Callable[[], int],
        can_shrink: Callable[[], bool],
        progress: Progress,
        env: Env,
    ) -> None:
        self.waits = 0
        self.closed: ClosedError | None = None
        self._limit_bytes = limit_bytes
        self._unflushed_bytes = unflushed_bytes
        self._can_shrink = can_shrink
        self._progress = progress
        self._env = env

    def check(self) -> None:
        """Raise if the writer is closed or has failed."""
        self._progress.check()
        if self.closed is not None:
            raise_again(self.closed)

    @property
    def is_full(self) -> bool:
        """Whether writers wait."""
        return self._unflushed_bytes() >= self._limit_bytes

    async def relieved(self) -> None:
        """Wait until there is room.

        Raises:
            ShaleError: the writer was closed or failed.
        """
        self.check()
        if not self.is_full:
            return
        self.waits += 1
        started = self._env.clock.monotonic_s()
        log.warning(
            Event.WRITER_BACKPRESSURE_STARTED, unflushed_bytes=self._unflushed_bytes(), limit_bytes=self._limit_bytes
        )
        while self._unflushed_bytes() >= self._limit_bytes:
            if self._can_shrink():
                await self._progress.changed.wait_for(_LOOK_AGAIN_S)
            else:
                await anyio.lowlevel.checkpoint()
            self.check()
        elapsed_ms = round(1000 * (self._env.clock.monotonic_s() - started))
        log.info(Event.WRITER_BACKPRESSURE_ENDED, duration_ms=elapsed_ms)
