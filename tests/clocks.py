"""Clocks for tests: one that a test moves, and one that stands still."""

from dataclasses import dataclass

from shale.env import Clock, SystemClock

START_MS = 1_700_000_000_000


@dataclass
class ManualClock(Clock):
    """A clock that only the test advances; wall time and monotonic time are the same."""

    ms: int = START_MS

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return self.ms / 1000

    def sleep(self, seconds: float) -> None:
        """Advance the clock."""
        self.ms += int(seconds * 1000)


@dataclass
class FixedClock(SystemClock):
    """A system clock whose wall time stands still, so that ids made from one seed are equal."""

    at_ms: int = START_MS

    def now_ms(self) -> int:
        return self.at_ms
