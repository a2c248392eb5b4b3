"""How a daemon stops: the first signal drains, the second one ends the process at once (docs/operations.md 11)."""

import os
import signal
from collections.abc import Callable
from enum import Enum, auto

import anyio

from shale.service.health import Health, State
from shale.service.sections import ShutdownSection
from shale.telemetry.events import Event
from shale.telemetry.log import EventLog

LAST_RESORT_S = 5.0
"""How long after the deadline a process that ignores its cancellation is ended without further ado."""


class Stop(Enum):
    """How the stop came out so far."""

    NOT_ASKED = auto()
    ASKED = auto()
    CUT_SHORT = auto()


class Shutdown:
    """Turns signals into a stop of the main function, and a stop that takes too long into its end."""

    def __init__(
        self, draining: anyio.Event, health: Health, section: ShutdownSection, log: EventLog, work: anyio.CancelScope
    ) -> None:
        self.draining = draining
        self._health = health
        self._section = section
        self._log = log
        self._work = work
        self.stop = Stop.NOT_ASKED

    async def listen(self, *, reload: Callable[[], None]) -> None:
        """Wait for signals until cancelled.  SIGHUP reads the settings again."""
        signals = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        with anyio.open_signal_receiver(*signals) as received:
            async with anyio.create_task_group() as tg:
                async for number in received:
                    if number is signal.SIGHUP:
                        reload()
                    elif self.stop is Stop.NOT_ASKED:
                        tg.start_soon(self._drain, number.name, name="shutdown")
                    else:
                        os._exit(128 + number)

    async def _drain(self, reason: str) -> None:
        self.stop = Stop.ASKED
        self._health.set_state(State.DRAINING)
        self._log.info(Event.SHUTDOWN_STARTED, reason=reason)
        await anyio.sleep(self._section.drain_delay)
        self.draining.set()
        if not self._health.started:
            self._work.cancel()  # an unfinished start leaves nothing that a crash would not leave
        await anyio.sleep(max(0.0, self._section.deadline - self._section.drain_delay))
        self.stop = Stop.CUT_SHORT
        self._work.cancel()
        await anyio.sleep(LAST_RESORT_S)
        os._exit(75)
