"""Backpressure: writers wait in their own task while too much is in memory (docs/protocol.md 4.9)."""

from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel

from shale.engine.progress import raise_again
from shale.engine.writer_parts import WriterParts
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger

if TYPE_CHECKING:
    from shale.errors import ClosedError

_LOOK_AGAIN_S = 30.0
log = get_logger("writer")


class Pressure:
    """Decides whether a write may go on.  ``waits`` counts how often a write has found too much and waited.

    Args:
        parts: of the writer; its progress wakes waiters.
    """

    __slots__ = (
        "_acceptor",
        "_env",
        "_limit_bytes",
        "_progress",
        "_since_s",
        "_waiting",
        "closed",
        "waits",
    )

    def __init__(self, parts: WriterParts) -> None:
        self.waits = 0
        self.closed: ClosedError | None = None
        self._waiting = 0
        self._since_s = 0.0
        self._limit_bytes = parts.options.max_unflushed_bytes
        self._acceptor = parts.acceptor
        self._progress = parts.progress
        self._env = parts.env

    def check(self) -> None:
        """Raise if the writer is closed or has failed."""
        self._progress.check()
        if self.closed is not None:
            raise_again(self.closed)

    @property
    def is_full(self) -> bool:
        """Whether writers wait."""
        return self._acceptor.unflushed_bytes >= self._limit_bytes

    async def relieved(self) -> None:
        """Wait until there is room.

        Raises:
            ShaleError: the writer was closed or failed.
        """
        self.check()
        if not self.is_full:
            return
        self._waiting += 1
        if self._waiting == 1:
            self._since_s = self._env.clock.monotonic_s()
            self._warn()
        try:
            await self._until_room()
        finally:
            self._waiting -= 1
            if not self._waiting:
                log.info(Event.WRITER_BACKPRESSURE_ENDED, duration_ms=self._waited_ms())

    async def _until_room(self) -> None:
        while self.is_full:
            self.waits += 1
            if not self._acceptor.can_shrink:
                await anyio.lowlevel.checkpoint()
            elif not await self._progress.changed.wait_for(_LOOK_AGAIN_S):
                self._warn()
            self.check()

    def _warn(self) -> None:
        log.warning(
            Event.WRITER_BACKPRESSURE_STARTED,
            unflushed_bytes=self._acceptor.unflushed_bytes,
            limit_bytes=self._limit_bytes,
            waiting=self._waiting,
            duration_ms=self._waited_ms(),
        )

    def _waited_ms(self) -> int:
        return round(1000 * (self._env.clock.monotonic_s() - self._since_s))
