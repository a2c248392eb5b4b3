"""What a daemon says about its health (docs/operations.md 10).

Checks read state that running parts maintain; none of them waits or asks the store, so an answer takes microseconds.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from shale.env import Clock
from shale.telemetry.metrics import Metrics

WATCHDOG_S = 30.0
"""A loop that has not turned for this long counts as dead."""


class State(StrEnum):
    """Where a process is in its life."""

    STARTING = "starting"
    ACTIVE = "active"
    STANDBY = "standby"
    FENCED = "fenced"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check found; ``message`` is shown to people.  ``ok`` and ``degraded``: working, but not well."""

    ok: bool
    message: str = ""
    degraded: bool = False


OK = Verdict(ok=True, message="ok")
Check = Callable[[], Verdict]


@dataclass(frozen=True, slots=True)
class Report:
    """The answer of one endpoint: all its checks by name."""

    ok: bool
    word: str
    checks: Mapping[str, Verdict]


class Health:
    """The checks of one process, and the state they are read with."""

    def __init__(self, clock: Clock, metrics: Metrics | None = None) -> None:
        self._clock = clock
        self._state = State.STARTING
        self._started = False
        self._problem: str | None = None
        self._ready_checks: dict[str, Check] = {}
        self._beats: dict[str, tuple[float, float]] = {}
        self._status: list[Callable[[], Mapping[str, Any]]] = []
        self._roles = (
            {
                state: metrics.gauge("shale_role", role=state.value)
                for state in (State.ACTIVE, State.STANDBY, State.FENCED, State.DRAINING)
            }
            if metrics is not None
            else {}
        )

    @property
    def state(self) -> State:
        """Where the process is in its life."""
        return self._state

    @property
    def started(self) -> bool:
        """Whether the process was ready at least once."""
        return self._started

    def set_state(self, state: State) -> None:
        """Move on.  Nobody leaves ``fenced``, and only a fence ends ``draining``."""
        if self._state is State.FENCED or (self._state is State.DRAINING and state is not State.FENCED):
            return
        self._state = state
        self._started |= state in (State.ACTIVE, State.STANDBY)
        for each, gauge in self._roles.items():
            gauge.set(1 if each is state else 0)

    def fail(self, problem: str) -> None:
        """Say that the process cannot go on: a background task died, or stored bytes are corrupt."""
        self._problem = problem

    def add_ready_check(self, name: str, check: Check) -> None:
        """Ask ``check`` whenever somebody wants to know whether the process can do its job now."""
        self._ready_checks[name] = check

    def watch(self, name: str, max_age_s: float = WATCHDOG_S) -> Callable[[], None]:
        """Expect a loop to turn: it calls what this returns, at least every ``max_age_s``."""
        self._beats[name] = (self._clock.monotonic_s(), max_age_s)

        def beat() -> None:
            self._beats[name] = (self._clock.monotonic_s(), max_age_s)

        return beat

    def unwatch(self, name: str) -> None:
        """A loop has ended as it should."""
        self._beats.pop(name, None)

    def add_status(self, status: Callable[[], Mapping[str, Any]]) -> None:
        """Add fields to ``/statusz``."""
        self._status.append(status)

    def live(self, exclude: frozenset[str] = frozenset()) -> Report:
        """Whether a restart would not help."""
        checks = {"tasks": OK if self._problem is None else Verdict(ok=False, message=self._problem)}
        now = self._clock.monotonic_s()
        for name, (seen, max_age_s) in self._beats.items():
            late_s = now - seen
            checks[f"watchdog.{name}"] = OK if late_s <= max_age_s else Verdict(False, f"silent for {late_s:.0f} s")
        return _report(checks, exclude)

    def ready(self, exclude: frozenset[str] = frozenset()) -> Report:
        """Whether the process can do its job now."""
        active = self._state is State.ACTIVE
        checks = {"state": Verdict(ok=active, message=self._state.value)}
        if self._problem is not None:
            checks["tasks"] = Verdict(ok=False, message=self._problem)
        if active:
            checks |= {name: check() for name, check in self._ready_checks.items()}
        return _report(checks, exclude)

    def startup(self, exclude: frozenset[str] = frozenset()) -> Report:
        """Whether replay and the first reading of the manifest are done."""
        return _report({"started": Verdict(ok=self._started, message=self._state.value)}, exclude)

    def status(self) -> dict[str, Any]:
        """Everything the parts have to tell, for people and the command line."""
        fields: dict[str, Any] = {"state": self._state.value, "ready": self.ready().ok}
        for status in self._status:
            fields.update(status())
        return fields


class Reachability:
    """Whether the store answers, told by those who ask it; the readiness check of docs/operations.md 10."""

    def __init__(self, clock: Clock, grace_s: float) -> None:
        self._clock = clock
        self._grace_s = grace_s
        self._failing_since_s = math.inf

    def succeeded(self) -> None:
        """The store answered."""
        self._failing_since_s = math.inf

    def failed(self) -> None:
        """The store did not answer."""
        self._failing_since_s = min(self._failing_since_s, self._clock.monotonic_s())

    def check(self) -> Verdict:
        """Ready while the trouble is younger than the grace: flapping helps nobody."""
        silent_s = self._clock.monotonic_s() - self._failing_since_s
        if silent_s < 0:
            return OK
        message = f"the store has not answered for {silent_s:.0f} s"
        return Verdict(ok=silent_s < self._grace_s, message=message, degraded=True)


def _report(checks: Mapping[str, Verdict], exclude: frozenset[str]) -> Report:
    asked = {name: verdict for name, verdict in checks.items() if name not in exclude}
    bad = [verdict.message for verdict in asked.values() if not verdict.ok]
    if bad:
        return Report(False, bad[0], asked)
    degraded = any(verdict.degraded for verdict in asked.values())
    return Report(True, "degraded" if degraded else "ok", asked)
