"""Which request meets which fault: decided without waiting or sending."""

import random
from dataclasses import dataclass, field
from typing import Literal

Action = Literal[
    "pass", "error", "slow-down", "reset-before", "reset-after", "truncated", "stall", "duplicate", "old-list"
]
STALL_S = (1.0, 8.0)
DUPLICATE_S = (0.0, 3.0)


@dataclass
class Rules:
    """The faults that are injected now, each with the share of requests that it affects."""

    rng: random.Random
    shares: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def choose(self, method: str, target: str) -> Action:
        """Choose what happens to one request."""
        for kind, share in self.shares.items():
            if self.rng.random() < share and (action := self._action(kind, method, target)) != "pass":
                self.counts[action] = self.counts.get(action, 0) + 1
                return action
        return "pass"

    def stall_s(self) -> float:
        """Return how long a stalled request waits."""
        return self.rng.uniform(*STALL_S)

    def duplicate_s(self) -> float:
        """Return after which time a request is sent again."""
        return self.rng.uniform(*DUPLICATE_S)

    def _action(self, kind: str, method: str, target: str) -> Action:
        is_list = method == "GET" and "list-type=2" in target
        if kind == "store-errors":
            return "error"
        if kind == "store-slow-down":
            return "slow-down"
        if kind == "store-reset-after":
            return "reset-after" if self.rng.random() < 0.7 else "reset-before"
        if kind == "store-truncated":
            return "truncated" if method == "GET" else "pass"
        if kind == "store-stalls":
            return "stall"
        if kind == "store-duplicates":
            return "duplicate" if method in ("PUT", "DELETE", "POST") else "pass"
        if kind == "store-old-lists":
            return "old-list" if is_list else "pass"
        raise ValueError(f"no fault of the proxy is called {kind}")
