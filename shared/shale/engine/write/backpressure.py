"""Backpressure: writes slow down with the backlog of flushes, and wait while memory holds too many unflushed bytes."""

import math
from typing import Protocol

import anyio
import anyio.lowlevel

from shale.engine.options import DbOptions
from shale.engine.write.durability import DurabilityTracker
from shale.env import Env
from shale.errors import WriteStalled
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger

WARN_INTERVAL_S = 30.0
_RELAXED_MEMTABLES, _RELAXED_BYTES_MIN = 4, 1 << 20
"""Writes are not delayed while memory holds so many memtables of the size of an L0 SST."""
_WAL_RELAXED_BYTES = 64 << 20
"""Nor while less than this is on its way into WAL files."""
_DELAY_S, _DELAY_MAX_S = 0.002, 0.05
"""With twice the relaxed bytes a write sleeps 2 ms.  A loop of writes then gives way about every millisecond: the time
of its last turn is from before the sleep."""
_WARN_MIN_S = 1.0
"""A writer at its limit waits many times a second, each time for a moment."""
log = get_logger("writer")


def delay_s(*loads: float) -> float:
    """Return how long a writer sleeps when it gives way.

    A thread of a flush or a compaction that waits for the GIL beside a loop of writes gets it late, so turns of the
    event loop alone do not help it: the backlog would grow until all memory is used, and then all writes would wait.

    Args:
        loads: the backlogs of flushes, as multiples of what is usual.
    """
    return min(max(*loads, 1.0) - 1.0, _DELAY_MAX_S / _DELAY_S) * _DELAY_S


class MemoryUsage(Protocol):
    """The memory that backpressure bounds."""

    @property
    def unflushed_bytes(self) -> int:
        """Estimated bytes of memtables and WAL buffer together."""
        ...

    @property
    def wal_buffer_bytes(self) -> int:
        """Bytes of rows that are not in a WAL file yet."""
        ...

    @property
    def is_draining(self) -> bool:
        """Whether a flush is due or under way that will notify ``DurabilityTracker.changed``."""
        ...


class Backpressure:
    """Delays writes while ``unflushed_bytes`` is at its limit.

    Args:
        memory: the memory in use.
        durability: wakes the waiters.
        options: the limit of unflushed bytes, and how long a write may wait.
        env: the clock for log fields.
    """

    __slots__ = (
        "_durability",
        "_env",
        "_limit_bytes",
        "_memory",
        "_relaxed_bytes",
        "_since_s",
        "_timeout_s",
        "_waiting",
        "_warned_s",
        "waits",
    )

    def __init__(self, memory: MemoryUsage, durability: DurabilityTracker, options: DbOptions, env: Env) -> None:
        self.waits = 0
        """How often a write found the memory full: before it waits, and at each check that follows a wait."""
        self._memory = memory
        self._durability = durability
        self._limit_bytes = options.max_unflushed_bytes
        self._relaxed_bytes = max(_RELAXED_MEMTABLES * options.l0_sst_size_bytes, _RELAXED_BYTES_MIN)
        self._env = env
        self._timeout_s = math.inf if options.stall_timeout_s is None else options.stall_timeout_s
        self._waiting = 0
        self._since_s = 0.0
        self._warned_s = -math.inf

    @property
    def is_full(self) -> bool:
        """Whether writes wait."""
        return self._memory.unflushed_bytes >= self._limit_bytes

    async def give_way(self) -> None:
        """Let other tasks run, and their threads, the longer the larger their backlog is."""
        memory = self._memory
        seconds = delay_s(memory.unflushed_bytes / self._relaxed_bytes, memory.wal_buffer_bytes / _WAL_RELAXED_BYTES)
        if seconds:
            await anyio.sleep(seconds)
        else:
            await anyio.lowlevel.checkpoint()

    async def wait_for_capacity(self) -> None:
        """Wait until there is room for a write.

        Raises:
            WriteStalled: there was none within ``stall_timeout``.
            ShaleError: the writer was closed or has failed.
        """
        self._durability.check_open()
        if not self.is_full:
            return
        self._waiting += 1
        if self._waiting == 1:
            self._since_s = self._env.clock.monotonic_s()
            self._warn_after(_WARN_MIN_S)
        try:
            with anyio.move_on_after(self._timeout_s) as waiting:
                await self._wait()
            if waiting.cancelled_caught:
                raise WriteStalled(
                    f"a write waited for {self._timeout_s:g} s: {self._memory.unflushed_bytes} bytes are unflushed, "
                    f"the limit is {self._limit_bytes}; {self._durability.stall or 'flushes are slower than writes'}"
                )
        finally:
            self._waiting -= 1
            if not self._waiting:
                log.info(Event.WRITER_BACKPRESSURE_ENDED, duration_ms=self._waited_ms())

    async def _wait(self) -> None:
        while self.is_full:
            self.waits += 1  # each check counts, as in SlateDB: the rate stays above 0 while writes are stuck
            if not self._memory.is_draining:
                # No flush is under way, so nothing would notify ``changed``: check again in the next turn of the loop.
                await anyio.lowlevel.checkpoint()
            elif not await self._durability.changed.wait_for(WARN_INTERVAL_S):
                self._warn_after(WARN_INTERVAL_S)
            self._durability.check_open()

    def _warn_after(self, pause_s: float) -> None:
        """Warn unless there was a warning within the pause: many writes may wait at once."""
        now_s = self._env.clock.monotonic_s()
        if now_s - self._warned_s < pause_s:
            return
        self._warned_s = now_s
        log.warning(
            Event.WRITER_BACKPRESSURE_STARTED,
            unflushed_bytes=self._memory.unflushed_bytes,
            limit_bytes=self._limit_bytes,
            waiting=self._waiting,
            duration_ms=self._waited_ms(),
        )

    def _waited_ms(self) -> int:
        return round(1000 * (self._env.clock.monotonic_s() - self._since_s))
