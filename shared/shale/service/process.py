"""What a daemon's main function gets: its settings, the world, the store, and the way to say how it is."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import anyio

from shale.engine.where import Stores
from shale.env import Env
from shale.errors import NotFoundError
from shale.service.admin import AdminApp
from shale.service.ending import Undurable
from shale.service.health import Health, State
from shale.service.settings import DaemonSettings
from shale.store.location import Location
from shale.store.port import ObjectStore
from shale.telemetry.events import Event
from shale.telemetry.log import EventLog
from shale.telemetry.metrics import Metrics

S = TypeVar("S", bound=DaemonSettings)
T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Process(Generic[S]):
    """One running daemon.

    ``draining`` is set when the process shall stop: the main function then ends its work in order and returns.
    ``wal_store`` is where the WAL lives, if not with the rest.
    ``on_reload`` is called with the new settings after a SIGHUP.
    ``undurable``, if a main function sets it, tells the first and last seq that were not durable when a stop was cut.
    """

    settings: S
    env: Env
    metrics: Metrics
    health: Health
    admin: AdminApp
    admin_port: int
    store: ObjectStore
    location: Location
    log: EventLog
    draining: anyio.Event = field(default_factory=anyio.Event)
    wal_store: ObjectStore | None = None
    on_reload: list[Callable[[S], None]] = field(default_factory=list)
    undurable: Undurable | None = None

    @property
    def root(self) -> str:
        """The database's path in the store."""
        return self.location.path

    @property
    def stores(self) -> Stores:
        """Both stores, for what takes them together; they stay the daemon's."""
        return Stores(self.store, self.wal_store, ())

    def ready(self, **fields: object) -> None:
        """Say that the daemon does its job from now on."""
        first = not self.health.started
        self.health.set_state(State.ACTIVE)
        if first:
            self.log.info(Event.DAEMON_READY, admin_port=self.admin_port, **fields)

    async def wait_for(self, look: Callable[[], Awaitable[T]], *, interval_s: float = 1.0) -> T:
        """Call ``look`` until it finds what it needs, which a writer may still be making.

        Raises:
            NotFoundError: still nothing when ``store.start_timeout`` is over.
        """
        deadline_s = self.env.clock.monotonic_s() + self.settings.store.start_timeout
        while True:
            try:
                return await look()
            except NotFoundError:
                if self.env.clock.monotonic_s() >= deadline_s:
                    raise
            await anyio.sleep(interval_s)


Main = Callable[[Process[S]], Awaitable[None]]
