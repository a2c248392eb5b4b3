"""The context of a daemon's main function: settings, environment, stores, health and readiness."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field
from typing import Generic, TypeVar

import anyio

from shale.core.lazy_dataclass import dataclass
from shale.engine.location import DatabaseStores
from shale.env import Env
from shale.errors import NotFoundError
from shale.service.access import AccessTokens
from shale.service.admin import AdminApp
from shale.service.config.settings import DaemonSettings
from shale.service.exit_logging import Undurable
from shale.service.health import Health, ServiceState
from shale.service.latency import Latency
from shale.service.memory.process_memory import ProcessMemory
from shale.service.tls.certificates import ServerCertificate
from shale.store.location import Location
from shale.store.port import ObjectStore
from shale.telemetry.events import Event
from shale.telemetry.log import LazyLogger
from shale.telemetry.metrics import Metrics

S = TypeVar("S", bound=DaemonSettings)
T = TypeVar("T")

ReloadCallback = Callable[[S], Sequence[str] | None]
"""Takes reloaded settings; returns the names of those that it can apply only after a restart."""


@dataclass(slots=True, kw_only=True)
class Process(Generic[S]):
    """One running daemon.

    Args:
        draining: set when the process has to stop; the main function then ends its work and returns.
        memory: what the parts of the process hold, its limit, and the budgets of its ports.
        wal_store: the store of the WAL, if it has one of its own.
        certificate: that of the data ports; ``None``: no TLS.
    """

    settings: S
    env: Env
    metrics: Metrics
    health: Health
    admin: AdminApp
    admin_port: int
    store: ObjectStore
    location: Location
    log: LazyLogger
    memory: ProcessMemory
    draining: anyio.Event = field(default_factory=anyio.Event)
    wal_store: ObjectStore | None = None
    certificate: ServerCertificate | None = None
    _reload_callbacks: list[ReloadCallback[S]] = field(default_factory=list, init=False)
    _reloaded: S | None = field(default=None, init=False)
    _undurable: Undurable | None = field(default=None, init=False)

    @property
    def root(self) -> str:
        """The path of the database in the store."""
        return self.location.path

    @property
    def stores(self) -> DatabaseStores:
        """Both stores as one value; the daemon still owns and closes them."""
        return DatabaseStores(self.store, self.wal_store, (), self.settings.manifest.write_version)

    def add_reload_callback(self, callback: ReloadCallback[S]) -> None:
        """Call ``callback`` with the new settings after each successful reload (SIGHUP).

        After an earlier reload it is called at once: a part may be made long after the start, as the ports of a writer
        that was a standby, and would have the tokens of before.
        """
        self._reload_callbacks.append(callback)
        if self._reloaded is not None:
            callback(self._reloaded)

    def apply_settings(self, settings: S) -> list[str]:
        """Pass reloaded settings to every reload callback, in the order of registration, and to later ones.

        Returns:
            The settings that need a restart.
        """
        self._reloaded = settings
        return [name for callback in self._reload_callbacks for name in callback(settings) or ()]

    def report_undurable(self, undurable: Undurable) -> None:
        """Log the result of ``undurable`` if the stop passes its deadline."""
        self._undurable = undurable

    def undurable(self) -> tuple[int, int] | None:
        """Return the first and last sequence number that are accepted but not durable, if any were reported."""
        return self._undurable() if self._undurable is not None else None

    def ready(self, **fields: object) -> None:
        """Report that the daemon is ready, also after a time as a standby."""
        first = self.health.state in (ServiceState.STARTING, ServiceState.STANDBY)
        self.health.set_state(ServiceState.ACTIVE)
        if first:
            self.log.info(Event.DAEMON_READY, admin_port=self.admin_port, **fields)

    async def wait_for(self, find: Callable[[], Awaitable[T]], *, interval_s: float = 1.0) -> T:
        """Call ``find`` until it succeeds; a writer may still be creating what it looks for.

        Raises:
            NotFoundError: ``find`` still raises it after ``store.start_timeout``.
        """
        deadline_s = self.env.clock.monotonic_s() + self.settings.store.start_timeout
        while True:
            try:
                return await find()
            except NotFoundError:
                if self.env.clock.monotonic_s() >= deadline_s:
                    raise
            await anyio.sleep(interval_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class PortServices:
    """What the data ports of a process share.

    Args:
        latency: observes calls of the database; ``None``: each of them.
        tokens: those of the port; ``None``: only its own one, if it is set.
        memory: bounds unsent responses, and tells whether memory is full.
        certificate: of TLS; ``None``: no TLS.
    """

    latency: Latency | None = None
    tokens: AccessTokens | None = None
    memory: ProcessMemory = field(default_factory=ProcessMemory)
    certificate: ServerCertificate | None = None


NO_SERVICES = PortServices()
"""Those of a port that is served without a daemon."""

Main = Callable[[Process[S]], Awaitable[None]]
