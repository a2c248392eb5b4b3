"""The life cycle of every daemon: one task group, one order of start and stop, one log line for a fatal error.

Start: settings, logs, admin port, store and its preflight check, the main function.  Stop: not ready, the main
function ends its work, the store is closed, the admin port closes last (docs/concepts/shutdown.md).
"""

import logging
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Generic, TypeVar

import anyio

from shale.core.address_limits import ConnectionCounts
from shale.core.memory_account import MemoryAccount
from shale.core.url_secrets import without_url_secrets
from shale.env import Env
from shale.format.names import boundary_key, wal_prefix
from shale.service import lean_structlog
from shale.service.access import AccessTokens, FailureLimit, Quotas
from shale.service.admin import AdminApp, register_process_metrics
from shale.service.audit_file import open_audit_file
from shale.service.build import version
from shale.service.config.access.exposed_ports import exposed_ports
from shale.service.config.reload import Reloader
from shale.service.config.settings import DaemonSettings, LoadedSettings, load_settings
from shale.service.config.settings_error import SettingsError
from shale.service.exit_codes import ExitCode, contains_fencing
from shale.service.exit_logging import log_failure, log_shutdown
from shale.service.exported_traces import exported_traces
from shale.service.health import Health, ServiceState, StoreReachability, writes_check
from shale.service.heartbeat import measure_event_loop, probe_store, watch_clock, watch_writes
from shale.service.http.server import ConnectionLimits, open_socket, serve_app
from shale.service.memory.process_memory import ProcessMemory
from shale.service.memory.watch import watch_memory
from shale.service.process import Main, Process
from shale.service.runtime_tuning import (
    connections_within_open_files,
    has_uvloop,
    raise_open_files,
    reuse_large_buffers,
    share_one_arena,
    tune_gc,
)
from shale.service.shutdown import FinalScrapes, Shutdown, ShutdownState
from shale.service.store_startup import RecoveryScope, StoreOpener
from shale.service.tls.certificates import PortCertificates
from shale.store.failing_writes import FailingWrites
from shale.store.port import ObjectStore
from shale.telemetry import tracing
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.telemetry.log_output import configure_logging
from shale.telemetry.metrics import Metrics

S = TypeVar("S", bound=DaemonSettings)

ADMIN_REQUEST_S = 1.0
"""Admin requests take milliseconds, so a stop waits this many seconds for them and no longer."""
ADMIN_CONNECTIONS_MAX = 512
ADMIN_CONNECTIONS_PER_ADDRESS = 128
ADMIN_EIGHTHS = 1
"""Of the files that the process may open."""
"""Health and metrics need no token, and each connection takes a file descriptor, which the data ports need, too."""


def run_daemon(settings_cls: type[S], main: Main[S], argv: Sequence[str]) -> int:
    """Run a daemon from its command line to its end.

    Args:
        settings_cls: the settings of the daemon; its ``ROLE`` names the daemon.
        main: does the work, calls ``process.ready()``, and returns soon after ``process.draining`` is set.
        argv: the command line without the program's name.

    Returns:
        The exit code, see docs/reference/exit-codes.md.
    """
    share_one_arena()
    tune_gc()
    raise_open_files()
    try:
        loaded = load_settings(settings_cls, argv)
    except SettingsError as error:
        for problem in error.problems:
            sys.stderr.write(f"shale {settings_cls.ROLE}: {without_url_secrets(problem)}\n")
        return ExitCode.CONFIG
    reuse_large_buffers(loaded.memory.limit_bytes)
    section = loaded.settings.log
    configure_logging(level=section.level, format_=section.format, full_keys=section.keys == "full")
    shell = _Shell(loaded, main, argv)
    try:
        anyio.run(shell.run, backend_options={"use_uvloop": has_uvloop()})
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    logging.shutdown()
    return shell.exit_code


class _Shell(Generic[S]):
    """One run of one daemon."""

    def __init__(self, loaded: LoadedSettings[S], main: Main[S], argv: Sequence[str]) -> None:
        self._loaded = loaded
        self._settings = loaded.settings
        self._main = main
        self._label = self._settings.database.label()
        self._location = self._settings.database.location()
        self._env = Env.system(cpu_threads=self._settings.cpu_threads)
        self._metrics = Metrics(db=self._label)
        account = MemoryAccount(loaded.memory.limit_bytes)
        self._memory = ProcessMemory(account, self._settings.memory.response_bytes)
        self._health = Health(self._env.clock, self._metrics)
        self._log = get_logger(self._settings.ROLE)
        self._admin_quotas = Quotas(self._env.clock, self._metrics, self._settings.admin.rates(), is_admin=True)
        self._admin_tokens = AccessTokens(
            self._settings.admin_tokens(),
            settings=("tokens", "admin.bearer_token"),
            required=self._settings.requires_admin_token(),
            quotas=self._admin_quotas,
            failures=FailureLimit(self._env.clock, self._metrics, self._settings.auth.failures_per_minute),
            certificate_required=self._settings.tls.client_ca_file is not None,
            is_local=self._settings.is_local(self._settings.admin.host),
        )
        self._certificates: PortCertificates | None = None
        self._sample_ratio = self._metrics.gauge("shale_metrics_sample_ratio")
        self._sample_ratio.set(self._settings.metrics.sample_rate)
        self._reloader = Reloader(loaded, argv, self._metrics, self._env.clock, self._log, apply=self._apply_settings)
        self._process: Process[S] | None = None
        self._reloaded: S | None = None
        self._stop = ShutdownState.NOT_REQUESTED
        self._admin_port = 0
        self.exit_code: int = ExitCode.ERROR

    async def run(self) -> None:
        """Run to the end and set ``exit_code``."""
        lean_structlog.bind_to_all_lines(db=self._label, version=version())
        role, settings_hash = self._settings.ROLE, self._loaded.sha256_8
        started_s = self._env.clock.now_ms() / 1000
        register_process_metrics(self._metrics, role=role, settings_hash=settings_hash, started_s=started_s)
        self._log.info(Event.DAEMON_STARTED, role=role, url=self._location.url, settings=settings_hash)
        if (problem := self._loaded.memory.problem) is not None:
            self._log.warning(Event.MEMORY_OVERCOMMITTED, error=problem)
        for variable in self._loaded.unknown_env:
            self._log.warning(Event.CONFIG_UNKNOWN_ENV, key=variable)
        for (section, _), problem in exposed_ports(self._settings.listening_ports()):
            self._log.warning(Event.AUTH_INSECURE, key=f"{section}.host", error=problem)
        try:
            with exported_traces(self._settings.tracing, self._env, role=role, db=self._label):
                await self._serve_and_work(started_s)
        except Exception as error:  # noqa: BLE001 - the top of the process: every error becomes a line and a code
            self.exit_code = log_failure(self._log, error, started=self._health.started)
            return
        if self._health.exit_code is None:
            undurable = self._process.undurable if self._process is not None else None
            self.exit_code = log_shutdown(self._log, self._stop, undurable)

    def _apply_settings(self, settings: S) -> list[str]:
        """Apply reloaded settings; return those that need a restart."""
        later = self._admin_tokens.replace(settings.admin_tokens(), required=settings.requires_admin_token())
        self._admin_quotas.replace(settings.admin.rates())
        self._sample_ratio.set(settings.metrics.sample_rate)
        if self._certificates is not None:
            self._certificates.reload()
        if (traces := tracing.active()) is not None:
            traces.sample(settings.tracing.sample_ratio)
        self._reloaded = settings
        return [*later, *([] if self._process is None else self._process.apply_settings(settings))]

    async def _serve_and_work(self, started_s: float) -> None:
        section = self._settings.admin
        scrapes = FinalScrapes(self._settings.shutdown.linger_scrapes)
        admin = AdminApp(self._health, self._metrics, self._admin_tokens, self._env.ids, scrapes)
        if self._settings.audit.file is not None:
            open_audit_file(self._settings.audit.file)
        if self._settings.tls.is_on:
            self._certificates = PortCertificates(self._settings.tls, self._metrics)
        listener = open_socket(section.host, self._settings.admin_listen_port, setting="admin.port")
        self._admin_port = listener.getsockname()[1]
        status = partial(self._status, started_s)
        self._health.add_status(status)
        async with anyio.create_task_group() as tg:
            work = anyio.CancelScope()
            shutdown = Shutdown(anyio.Event(), self._health, self._settings.shutdown, self._log, work, scrapes)
            tg.start_soon(partial(shutdown.listen, reload=self._reloader.reload), name="signals")
            tg.start_soon(watch_memory, self._env, self._metrics, self._memory.account, name="memory")
            tg.start_soon(measure_event_loop, self._env, self._metrics, self._health, name="event_loop")
            certificates = self._certificates
            if certificates is not None:
                tg.start_soon(certificates.watch, name="tls")
            addresses = ConnectionCounts(ADMIN_CONNECTIONS_PER_ADDRESS)
            self._memory.count_connections(lambda: addresses.total, tls=certificates is not None)
            async with serve_app(
                admin.asgi,
                listener,
                request_timeout_s=ADMIN_REQUEST_S,
                limits=ConnectionLimits(
                    connections_max=connections_within_open_files(ADMIN_CONNECTIONS_MAX, ADMIN_EIGHTHS),
                    per_address=addresses,
                    unread=self._memory.unread,
                ),
                certificate=None if certificates is None else certificates.admin,
            ):
                try:
                    with work:
                        await self._work(admin, shutdown.draining)
                except Exception as error:  # noqa: BLE001 - as in ``run``, while the admin port is still served
                    self._fail(error)
                    self._health.add_status(status)
                finally:
                    self._stop = shutdown.stop
                if self._health.exit_code is not None:
                    await shutdown.linger(self._health.exit_code, admin_port=self._admin_port)
            tg.cancel_scope.cancel()

    def _status(self, started_s: float) -> dict[str, object]:
        return {
            "role": self._settings.ROLE,
            "db": self._label,
            "url": self._location.url,
            "version": version(),
            "admin_port": self._admin_port,
            "uptime_s": round(self._env.clock.now_ms() / 1000 - started_s, 3),
        }

    def _fail(self, error: Exception) -> None:
        """Log the error and make its exit code visible; the parts of the process are closed."""
        self.exit_code = log_failure(self._log, error, started=self._health.started)
        self._process = None
        if contains_fencing(error):
            self._health.set_state(ServiceState.FENCED)
        self._health.terminate(self.exit_code)
        self._metrics.gauge("shale_exit_code", component=self._settings.ROLE).set(self.exit_code)

    async def _work(self, admin: AdminApp, draining: anyio.Event) -> None:
        settings = self._settings
        writes = FailingWrites(self._env.clock)
        opener = StoreOpener(settings.store, self._env, self._metrics, settings.ROLE, writes)
        up = self._metrics.gauge("slatedb_object_store_up", component=settings.ROLE)
        reachability = StoreReachability(self._env.clock, settings.ready.grace, up)
        wal_url, wal_store = settings.database.wal_store_url(), None
        wal_files = wal_prefix(self._location.path)
        async with AsyncExitStack() as stores:
            store = await stores.enter_async_context(
                opener.open(
                    self._location.store_url,
                    needs_update=settings.needs_conditional_update(),
                    writes=settings.writes_to_store(),
                    path=settings.preflight_path(),
                    recovers=RecoveryScope(excluded=None if wal_url is None else wal_files),
                )
            )
            if wal_url is not None and settings.uses_wal():
                wal_store = await stores.enter_async_context(
                    opener.open(
                        wal_url,
                        needs_update=False,
                        writes=settings.writes_to_wal(),
                        path=settings.preflight_path(),
                        store_type="wal",
                        recovers=RecoveryScope(prefix=wal_files),
                    )
                )
            self._health.add_ready_check("store", reachability.check)
            required = settings.requires_writes()
            self._health.add_ready_check("store_writes", writes_check(writes, settings.ready.grace, required=required))
            self._process = Process(
                settings=settings,
                env=self._env,
                metrics=self._metrics,
                health=self._health,
                admin=admin,
                admin_port=self._admin_port,
                certificate=None if self._certificates is None else self._certificates.data,
                store=store,
                wal_store=wal_store,
                location=self._location,
                log=self._log,
                memory=self._memory,
                draining=draining,
            )
            if self._reloaded is not None:  # while the store was not reached
                self._process.apply_settings(self._reloaded)
            await self._main_and_watch(self._process, store, reachability, writes)

    async def _main_and_watch(
        self, process: Process[S], store: ObjectStore, reachability: StoreReachability, writes: FailingWrites
    ) -> None:
        async with anyio.create_task_group() as tg:
            grace_s = self._settings.ready.grace
            interval_s = max(0.5, min(10.0, grace_s / 3))
            failing = self._metrics.gauge("slatedb_object_store_write_failing_seconds", component=self._settings.ROLE)
            tg.start_soon(partial(watch_writes, writes, failing, self._metrics, grace_s=grace_s), name="writes")
            watch = partial(
                probe_store, store, boundary_key(process.root, "manifest"), reachability, interval_s=interval_s
            )
            tg.start_soon(watch, name="probe_store")
            if self._settings.store.preflight and self._settings.writes_to_store():
                clock = partial(
                    watch_clock,
                    store,
                    self._env,
                    self._settings.preflight_path(),
                    self._metrics,
                    interval_s=self._settings.store.clock_check_interval,
                )
                tg.start_soon(clock, name="clock")
            await self._main(process)
            tg.cancel_scope.cancel()
