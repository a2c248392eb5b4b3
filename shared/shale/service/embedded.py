"""The context of a service that is embedded in another process, next to the writer of a database."""

from typing import Protocol

from shale.env import Env
from shale.store.port import ObjectStore
from shale.telemetry.metrics import Metrics


class ServiceContext(Protocol):
    """The database that an embedded service works on."""

    @property
    def store(self) -> ObjectStore:
        """The store of the database."""
        ...

    @property
    def root(self) -> str:
        """The path of the database in the store."""
        ...

    @property
    def env(self) -> Env:
        """Clock, randomness, ids and threads."""
        ...

    @property
    def metrics(self) -> Metrics:
        """The metrics registry of the process."""
        ...
