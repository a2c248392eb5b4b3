"""Latency histograms that observe a sample of the calls (docs/how-to/monitor.md)."""

from collections.abc import Awaitable
from typing import TypeVar

from shale.env import Env
from shale.telemetry.instruments import Histogram

T = TypeVar("T")


class Latency:
    """Observes the latency of calls; ``sample_rate`` is the share of calls that is observed, and may change."""

    def __init__(self, env: Env, sample_rate: float) -> None:
        self._rng = env.rng
        self._monotonic_s = env.clock.monotonic_s
        self.sample_rate = sample_rate

    async def of(self, histogram: Histogram, call: Awaitable[T]) -> T:
        """Await ``call`` and observe its latency, also if it fails."""
        if self.sample_rate < 1.0 and self._rng.random() >= self.sample_rate:
            return await call
        start_s = self._monotonic_s()
        try:
            return await call
        finally:
            histogram.observe(self._monotonic_s() - start_s)
