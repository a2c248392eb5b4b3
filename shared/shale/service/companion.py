"""What a daemon's work is told when it runs inside another process, beside the writer of a database."""

from typing import Protocol

from shale.env import Env
from shale.store.port import ObjectStore
from shale.telemetry.metrics import Metrics


class Place(Protocol):
    """The database."""

    @property
    def store(self) -> ObjectStore:
        """Where it lives."""
        ...

    @property
    def root(self) -> str:
        """Its path there."""
        ...

    @property
    def env(self) -> Env:
        """The outside world."""
        ...

    @property
    def metrics(self) -> Metrics:
        """Counts here."""
        ...
