"""Health of a daemon: liveness, readiness, startup and status (docs/reference/health.md).

Checks read state that running parts maintain.  No check waits or sends a request, so a probe takes microseconds.
"""

import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from shale.core.lazy_dataclass import dataclass
from shale.env import Clock
from shale.store.failing_writes import FailingWrites
from shale.telemetry.instruments import Gauge
from shale.telemetry.metrics import Metrics

WATCHDOG_S = 30.0
"""A loop that has not reported for this many seconds counts as dead."""


class ServiceState(StrEnum):
    """The life-cycle state of a process."""

    STARTING = "starting"
    ACTIVE = "active"
    STANDBY = "standby"
    FENCED = "fenced"
    DRAINING = "draining"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class HealthCheckResult:
    """The result of one check, with a message for operators.  ``ok`` with ``degraded``: working with a problem."""

    ok: bool
    message: str = ""
    degraded: bool = False


OK = HealthCheckResult(ok=True, message="ok")
Check = Callable[[], HealthCheckResult]


@dataclass(frozen=True, slots=True)
class HealthReport:
    """The result of one health endpoint: all its checks by name."""

    ok: bool
    word: str
    checks: Mapping[str, HealthCheckResult]


class Health:
    """The state and the checks of one process."""

    def __init__(self, clock: Clock, metrics: Metrics | None = None) -> None:
        self._clock = clock
        self._state = ServiceState.STARTING
        self._started = False
        self._problem: str | None = None
        self._exit_code: int | None = None
        self._ready_checks: dict[str, Check] = {}
        self._beats: dict[str, tuple[float, float]] = {}
        self._status: list[Callable[[], Mapping[str, Any]]] = []
        self._roles = (
            {
                state: metrics.gauge("shale_role", role=state.value)
                for state in ServiceState
                if state is not ServiceState.STARTING
            }
            if metrics is not None
            else {}
        )

    @property
    def state(self) -> ServiceState:
        """The life-cycle state of the process."""
        return self._state

    @property
    def started(self) -> bool:
        """Whether the process was ready at least once."""
        return self._started

    @property
    def exit_code(self) -> int | None:
        """The code with which the process is about to exit; ``None`` while it works."""
        return self._exit_code

    def terminate(self, exit_code: int) -> None:
        """Enter the final state of a process that has failed and still serves its metrics.

        The checks and the status fields of the parts are removed, because the parts are closed.
        """
        self._exit_code = exit_code
        self.set_state(ServiceState.FAILED)
        self._ready_checks.clear()
        self._beats.clear()
        self._status.clear()

    def set_state(self, state: ServiceState) -> None:
        """Change the state.  ``fenced`` and ``failed`` are final, and ``draining`` changes only to them."""
        final = (ServiceState.FENCED, ServiceState.FAILED)
        if self._state in final or (self._state is ServiceState.DRAINING and state not in final):
            return
        self._state = state
        self._started |= state in (ServiceState.ACTIVE, ServiceState.STANDBY)
        for each, gauge in self._roles.items():
            gauge.set(1 if each is state else 0)

    def fail(self, problem: str) -> None:
        """Mark the process as failed: a background task died, or stored bytes are corrupt."""
        self._problem = problem

    def add_ready_check(self, name: str, check: Check) -> None:
        """Add a check to the readiness endpoint."""
        self._ready_checks[name] = check

    def watch(self, name: str, max_age_s: float = WATCHDOG_S) -> Callable[[], None]:
        """Register a watchdog.

        Returns:
            A function that the watched loop must call at least every ``max_age_s`` seconds.
        """
        self._beats[name] = (self._clock.monotonic_s(), max_age_s)

        def beat() -> None:
            self._beats[name] = (self._clock.monotonic_s(), max_age_s)

        return beat

    def unwatch(self, name: str) -> None:
        """Remove a watchdog because its loop has ended normally."""
        self._beats.pop(name, None)

    def add_status(self, status: Callable[[], Mapping[str, Any]]) -> None:
        """Add fields to ``/statusz``."""
        self._status.append(status)

    def live(self, exclude: frozenset[str] = frozenset()) -> HealthReport:
        """Return the liveness report; a failed one asks for a restart, which a process that exits does not need."""
        if self._exit_code is not None:
            return _report({"tasks": HealthCheckResult(ok=True, message=f"exits with {self._exit_code}")}, exclude)
        checks = {"tasks": OK if self._problem is None else HealthCheckResult(ok=False, message=self._problem)}
        now = self._clock.monotonic_s()
        for name, (seen, max_age_s) in self._beats.items():
            late_s = now - seen
            checks[f"watchdog.{name}"] = (
                OK if late_s <= max_age_s else HealthCheckResult(False, f"silent for {late_s:.0f} s")
            )
        return _report(checks, exclude)

    def ready(self, exclude: frozenset[str] = frozenset()) -> HealthReport:
        """Return the readiness report: whether the process can do its job now."""
        active = self._state is ServiceState.ACTIVE
        checks = {"state": HealthCheckResult(ok=active, message=self._state.value)}
        if self._problem is not None:
            checks["tasks"] = HealthCheckResult(ok=False, message=self._problem)
        if active:
            checks |= {name: check() for name, check in self._ready_checks.items()}
        return _report(checks, exclude)

    def startup(self, exclude: frozenset[str] = frozenset()) -> HealthReport:
        """Return the startup report: whether the process was ready once."""
        return _report({"started": HealthCheckResult(ok=self._started, message=self._state.value)}, exclude)

    def status(self) -> dict[str, Any]:
        """Return the status fields of all parts, for operators and the command line."""
        fields: dict[str, Any] = {"state": self._state.value, "ready": self.ready().ok, "exit_code": self._exit_code}
        for status in self._status:
            fields.update(status())
        return fields


class StoreReachability:
    """Whether the store responds, from the results of ``probe_store``; see docs/reference/health.md.

    Args:
        grace_s: how long the process stays ready without a response.
        up: a gauge: 1 after a response, 0 after a request without one.
    """

    def __init__(self, clock: Clock, grace_s: float, up: Gauge) -> None:
        self._clock = clock
        self._up = up
        self._grace_s = grace_s
        self._failing_since_s = math.inf

    def succeeded(self) -> None:
        """Record a response of the store."""
        self._up.set(1)
        self._failing_since_s = math.inf

    def failed(self) -> None:
        """Record a request without a response."""
        self._up.set(0)
        self._failing_since_s = min(self._failing_since_s, self._clock.monotonic_s())

    def check(self) -> HealthCheckResult:
        """Stay ready during the grace period, so that short outages do not change readiness."""
        silent_s = self._clock.monotonic_s() - self._failing_since_s
        if silent_s < 0:
            return OK
        message = f"the store has not responded for {silent_s:.0f} s"
        return HealthCheckResult(ok=silent_s < self._grace_s, message=message, degraded=True)


def writes_check(writes: FailingWrites, grace_s: float, *, required: bool) -> Check:
    """Return a check of the writes to the store, which fail on a full disk while reads are answered.

    Args:
        writes: the failing writes of the process.
        grace_s: how long the process stays ready while they fail.
        required: whether a process whose writes fail cannot do its job; a reader can.
    """

    def check() -> HealthCheckResult:
        write = writes.oldest()
        if write is None:
            return OK
        seconds = writes.failing_s()
        message = f"the store has not taken a write for {seconds:.0f} s: {write.error}"
        return HealthCheckResult(ok=not required or seconds < grace_s, message=message, degraded=True)

    return check


def _report(checks: Mapping[str, HealthCheckResult], exclude: frozenset[str]) -> HealthReport:
    asked = {name: verdict for name, verdict in checks.items() if name not in exclude}
    bad = [verdict.message for verdict in asked.values() if not verdict.ok]
    if bad:
        return HealthReport(False, bad[0], asked)
    degraded = any(verdict.degraded for verdict in asked.values())
    return HealthReport(True, "degraded" if degraded else "ok", asked)
