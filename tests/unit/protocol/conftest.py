"""A database in memory with a clock that the test moves, and processes that share it."""

import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import anyio
import pytest

from shale.env import Env, InlineCpu
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.options import ProtocolOptions
from shale.store.memory import MemoryStore
from shale.store.retry import RetryingStore
from shale.telemetry.metrics import Metrics
from tests.clocks import ManualClock

T = TypeVar("T")
ROOT = "db"


@dataclass
class Process:
    """One process: its own caches over the shared store."""

    store: Any
    env: Env
    options: ProtocolOptions = field(default_factory=ProtocolOptions)
    metrics: Metrics = field(default_factory=Metrics)

    def __post_init__(self) -> None:
        self.store = RetryingStore(self.store, self.env)
        self.manifests = ManifestStore(self.store, ROOT, self.env, self.metrics, self.options)
        self.compactions = CompactionsStore(self.store, ROOT, self.env, self.metrics, self.options)

    def metric(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, {"db": "", **labels}) or 0.0


@dataclass
class World:
    """The store, the clock, and a way to start processes."""

    clock: ManualClock = field(default_factory=ManualClock)
    processes: int = 0

    def __post_init__(self) -> None:
        self.memory = MemoryStore(self.clock)

    def process(self, *, through: Callable[[Any], Any] | None = None, **options: Any) -> Process:
        self.processes += 1
        env = Env(self.clock, random.Random(self.processes), InlineCpu())
        store = self.memory if through is None else through(self.memory)
        return Process(store, env, ProtocolOptions(**options))


@pytest.fixture
def world() -> Iterator[World]:
    return World()


def run(main: Callable[[], Awaitable[T]]) -> T:
    """Run the body of a test in a new event loop."""
    return anyio.run(main)
