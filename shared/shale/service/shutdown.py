"""Graceful shutdown: the first signal drains, a second one ends the process at once (docs/concepts/shutdown.md)."""

import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import field
from enum import Enum, auto

import anyio

from shale.core.lazy_dataclass import dataclass
from shale.errors import ShaleError
from shale.service.config.shutdown_section import ShutdownSection
from shale.service.exit_codes import LINGERING_CODES
from shale.service.health import Health, ServiceState
from shale.telemetry.events import Event
from shale.telemetry.log import LazyLogger

LAST_RESORT_S = 5.0
"""Seconds after the deadline at which a process that ignores its cancellation exits at once."""


class ShutdownState(Enum):
    """The progress of a stop."""

    NOT_REQUESTED = auto()
    REQUESTED = auto()
    DEADLINE_PASSED = auto()


class FinalScrapes:
    """Counts the scrapes of a process that has failed, and only waits until its metrics were read.

    Args:
        wanted: with so many scrapes the wait is over; 0: no number of scrapes ends it.
    """

    def __init__(self, wanted: int) -> None:
        self.count = 0
        self._wanted = wanted
        self._complete = anyio.Event()

    @property
    def is_complete(self) -> bool:
        """Whether there were as many scrapes as wanted."""
        return self._complete.is_set()

    async def record(self) -> None:
        """Count a scrape that was answered."""
        self.count += 1
        if self.count == self._wanted:
            self._complete.set()

    async def wait(self) -> None:
        """Wait for the wanted number of scrapes."""
        await self._complete.wait()


@dataclass(slots=True, eq=False)
class Shutdown:
    """Turns signals into a graceful stop, and cancels the main function at the deadline.

    ``scrapes``: those that end the lingering after a failure.
    """

    draining: anyio.Event
    health: Health
    section: ShutdownSection
    log: LazyLogger
    work: anyio.CancelScope
    scrapes: FinalScrapes
    stop: ShutdownState = field(default=ShutdownState.NOT_REQUESTED, init=False)
    _lingering: anyio.CancelScope | None = field(default=None, init=False)

    async def listen(self, *, reload: Callable[[], None]) -> None:
        """Handle signals until cancelled.  SIGHUP reloads the settings."""
        signals = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        with anyio.open_signal_receiver(*signals) as received:
            async with anyio.create_task_group() as tg:
                async for number in received:
                    if number is signal.SIGHUP:
                        reload()
                    elif self._lingering is not None:
                        self._lingering.cancel()
                    elif self.stop is ShutdownState.NOT_REQUESTED:
                        tg.start_soon(self._drain, number.name, name="shutdown")
                    else:
                        os._exit(128 + number)

    async def linger(self, exit_code: int, *, admin_port: int) -> None:
        """Keep the admin port open until the exit code and the last counters were scraped.

        It lasts for ``shutdown.linger`` at most.  The caller has closed the stores and the data ports: nothing is
        claimed or written any more.  A signal ends the wait.  A process that was asked to stop does not wait at all.
        """
        if exit_code not in LINGERING_CODES or self.section.linger == 0 or self.stop is not ShutdownState.NOT_REQUESTED:
            return
        seconds = self.section.linger
        self.log.info(Event.DAEMON_LINGERING, exit_code=exit_code, seconds=seconds, admin_port=admin_port)
        with anyio.CancelScope() as self._lingering, anyio.move_on_after(seconds):
            await self.scrapes.wait()
        reason = "scraped" if self.scrapes.is_complete else "signal" if self._lingering.cancel_called else "time"
        self.log.info(Event.DAEMON_LINGERING_ENDED, reason=reason, scrapes=self.scrapes.count)

    async def _drain(self, reason: str) -> None:
        self.stop = ShutdownState.REQUESTED
        self.health.set_state(ServiceState.DRAINING)
        self.log.info(Event.SHUTDOWN_STARTED, reason=reason)
        await anyio.sleep(self.section.drain_delay)
        self.draining.set()
        if not self.health.started:
            self.work.cancel()  # cancelling an unfinished start is as safe as a crash
        await anyio.sleep(max(0.0, self.section.deadline - self.section.drain_delay))
        self.stop = ShutdownState.DEADLINE_PASSED
        self.work.cancel()
        await anyio.sleep(LAST_RESORT_S)
        os._exit(75)


async def wait_until_stopped(draining: anyio.Event, failed: Callable[[], Awaitable[ShaleError]]) -> ShaleError | None:
    """Wait until the process has to stop, or until the database fails; return that failure.

    Args:
        draining: set when the process has to stop.
        failed: waits for the failure of the database.
    """
    problem: ShaleError | None = None

    async def watch(scope: anyio.CancelScope) -> None:
        nonlocal problem
        problem = await failed()
        scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch, tasks.cancel_scope, name="failure")
        await draining.wait()
        tasks.cancel_scope.cancel()
    return problem
