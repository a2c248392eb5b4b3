"""How long clients of the Redis port wait for replies, by the category of the command.

The commands that arrive together are answered together, so they have the same latency: from their arrival until their
replies are sent.  It is measured once for all of them, because a clock for each would cost as much as finding its key.
"""

from shale.env import Clock
from shale.telemetry.metrics import Metrics

READ, WRITE, SCAN, OTHER = range(4)
"""Places in the lists of counts."""

CATEGORIES = ("read", "write", "scan", "other")
"""Their labels."""


class CommandLatency:
    """Observes batches of commands."""

    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        name = "shale_resp_command_duration_seconds"
        self.now_s = clock.monotonic_s
        self._histograms = [metrics.histogram(name, category=category) for category in CATEGORIES]

    def observe(self, counts: list[int], begun_s: float, trace_id: str | None = None) -> None:
        """Observe the commands of a batch that is answered now.

        Args:
            counts: how many ran, by category; zeros afterwards.
            begun_s: when they arrived, by ``now_s``.
            trace_id: of their trace, if they are traced; the exemplar.
        """
        seconds = self.now_s() - begun_s
        for category, count in enumerate(counts):
            if count:
                histogram = self._histograms[category]
                histogram.observe(seconds, count)
                if trace_id is not None:
                    histogram.set_exemplar(seconds, trace_id)
                counts[category] = 0
