"""The faults of a simulation, drawn from its seed.

Every seed leaves some kinds of fault out: a bug that only shows without retries, or only with slow answers, would
otherwise be masked by the others.
"""

import random  # noqa: TID251 - only the type; the instance is injected
from dataclasses import replace
from typing import Self

from shale.core.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SimOptions:
    """Probabilities are per request, times are seconds of virtual time.

    Args:
        latency_s: each way of a request takes up to this long.
        slow: how often a way takes up to ``slow_s`` instead, so that responses overtake each other.
        fail_before: the request fails and nothing happened.
        fail_after: it takes effect, and the response is an error.
        fail_late: the response is an error, and the effect comes up to ``slow_s`` later.
        freeze: how often the process stops, before sending or after the effect, for up to ``freeze_s``.
        kill: how often it is killed there; requests in flight may still arrive.
        attributes: whether objects keep metadata, which tells a lost response from a conflict.
        skew_ms: clocks of processes differ from the store's by up to this much.
        list_page: objects in a page of a listing.
    """

    latency_s: float = 0.02
    slow: float = 0.0
    slow_s: float = 10.0
    fail_before: float = 0.0
    fail_after: float = 0.0
    fail_late: float = 0.0
    freeze: float = 0.0
    freeze_s: float = 3600.0
    kill: float = 0.0
    attributes: bool = True
    skew_ms: int = 0
    list_page: int = 1000

    @classmethod
    def calm(cls) -> Self:
        """Return options without faults, with a small latency."""
        return cls()

    @classmethod
    def swarm(cls, rng: random.Random) -> Self:
        """Return a mixture of faults, each of which is absent with some seeds."""

        def sometimes(probability_max: float) -> float:
            return rng.choice((0.0, rng.uniform(0.0, probability_max)))

        return cls(
            latency_s=rng.choice((0.0, 0.02, 0.5)),
            slow=sometimes(0.1),
            slow_s=rng.choice((5.0, 90.0)),
            fail_before=sometimes(0.15),
            fail_after=sometimes(0.15),
            fail_late=sometimes(0.05),
            freeze=sometimes(0.02),
            freeze_s=rng.choice((30.0, 600.0, 7200.0)),
            kill=sometimes(0.005),
            attributes=rng.random() < 0.7,
            skew_ms=rng.choice((0, 100, 5_000)),
        )

    def healed(self) -> "SimOptions":
        """Return options for the same store without faults."""
        calm = SimOptions.calm()
        return replace(
            calm, attributes=self.attributes, skew_ms=self.skew_ms, latency_s=min(self.latency_s, calm.latency_s)
        )
