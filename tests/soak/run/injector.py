"""Begins and ends faults."""

import signal
import threading
from collections.abc import Callable

from tests.soak.plan.faults import CLIENTS, STORE, WRITERS, Fault
from tests.soak.run.events import Event, Events
from tests.soak.stack.daemons import Daemons
from tests.soak.stack.network import Network
from tests.soak.stack.processes import CURRENT, PREVIOUS, Command, Supervisor
from tests.soak.stack.store import Store, drain, fill

WheelCommand = Callable[[str, float, bool], Command]


CUTS = {"partition-from-store": STORE, "partition-from-clients": CLIENTS, "partition-from-standby": ""}
"""Kinds that cut a node off from one other node only; a writer's standby is the other writer."""


def other_side(fault: Fault) -> str:
    """Return the node from which a fault cuts its target off."""
    return CUTS[fault.kind] or next(name for name in WRITERS if name != fault.target)


class Injector:
    """Carries out the faults of one run."""

    def __init__(
        self,
        supervisor: Supervisor,
        daemons: Daemons,
        store: Store,
        network: Network,
        events: Events,
        wheel_command: WheelCommand,
    ) -> None:
        self._supervisor = supervisor
        self._daemons = daemons
        self._store = store
        self._network = network
        self._events = events
        self._wheel_command = wheel_command
        self._active: dict[int, tuple[Fault, Event]] = {}

    def begin(self, fault: Fault) -> str:
        """Begin a fault; return what was done."""
        done = self._begin(fault)
        event = self._events.add(fault.kind, fault.target, done, fault=fault.number)
        if fault.duration_s:
            self._active[fault.number] = (fault, event)
        return done

    def end(self, number: int) -> None:
        """End a fault that lasts."""
        fault, event = self._active.pop(number)
        self._end(fault)
        self._events.end(event)

    def end_all(self) -> None:
        """End all faults."""
        for number in list(self._active):
            self.end(number)
        self._store.heal()

    def _begin(self, fault: Fault) -> str:
        kind, target = fault.kind, fault.target
        if kind == "kill":
            was_there = self._supervisor.signal(target, signal.SIGKILL, kind)
            return "SIGKILL" if was_there else "nothing: it was not running"
        if kind == "stop":
            was_there = self._supervisor.signal(target, signal.SIGTERM, kind)
            return "SIGTERM" if was_there else "nothing: it was not running"
        if kind == "freeze":
            self._supervisor.signal(target, signal.SIGSTOP)
            return f"SIGSTOP for {fault.duration_s:.1f} s"
        if kind == "clock-step":
            self._daemons.set_clock(target, fault.amount)
            return f"wall clock {fault.amount:+.1f} s for {fault.duration_s:.1f} s"
        if kind == "full-store":
            threading.Thread(target=fill, args=(self._store.objects,)).start()
            return f"no space for {fault.duration_s:.1f} s"
        if kind == "full-disk-cache":
            fill(self._daemons.cache(target))
            return f"no space for {fault.duration_s:.1f} s"
        if kind.startswith("store-"):
            self._store.inject(kind, fault.amount)
            return f"{fault.amount:.0%} of requests for {fault.duration_s:.1f} s"
        if kind == "partition":
            self._network.isolate(target)
            return f"no packets for {fault.duration_s:.1f} s"
        if kind in CUTS:
            self._network.cut(target, other_side(fault))
            return f"no answers of {other_side(fault)} for {fault.duration_s:.1f} s"
        if kind == "other-version":
            return self._change_version(target)
        if kind == "rival-writer":
            return self._start_rival(target)
        if kind.startswith("wheel-writes"):
            return self._start_wheel(fault)
        raise ValueError(f"no fault is called {kind}")

    def _end(self, fault: Fault) -> None:
        kind, target = fault.kind, fault.target
        if kind == "freeze":
            self._supervisor.signal(target, signal.SIGCONT)
        elif kind == "clock-step":
            self._daemons.set_clock(target, 0)
        elif kind == "full-store":
            drain(self._store.objects)
        elif kind == "full-disk-cache":
            drain(self._daemons.cache(target))
        elif kind.startswith("store-"):
            self._store.heal(kind)
        elif kind == "partition":
            self._network.join(target)
        elif kind in CUTS:
            self._network.mend(target, other_side(fault))
        elif kind == "wheel-writes-and-compacts":
            self._supervisor.nodes["compactor"].is_restarted = True

    def _change_version(self, target: str) -> str:
        """Restart a daemon with the other version, as a rolling upgrade or downgrade does."""
        version = PREVIOUS if self._daemons.version(target) == CURRENT else CURRENT
        self._daemons.use(target, version)
        self._supervisor.signal(target, signal.SIGTERM, "other-version")
        return f"SIGTERM; next is the {version} version"

    def _start_rival(self, target: str) -> str:
        """Restart one writer without waiting as a standby: it fences the other one."""
        self._daemons.standby_of[target] = False
        self._supervisor.signal(target, signal.SIGKILL, "rival-writer")
        return "SIGKILL; its successor takes over at once"

    def _start_wheel(self, fault: Fault) -> str:
        """Let a writer of the slatedb package take over."""
        compacts = fault.kind == "wheel-writes-and-compacts"
        if compacts:
            self._supervisor.nodes["compactor"].is_restarted = False
            self._supervisor.signal("compactor", signal.SIGTERM, fault.kind)
        name = f"wheel-{fault.number}"
        command = self._wheel_command(name, fault.duration_s, compacts)
        self._supervisor.add(name, lambda _number: command, is_restarted=False)
        return f"writes for {fault.duration_s:.1f} s" + (", and compacts" if compacts else "")

    def settle_rivals(self) -> None:
        """Let further instances of the writers wait as standbys again, once the rival was started."""
        for name in WRITERS:
            node = self._supervisor.nodes[name]
            if not self._daemons.standby_of[name] and node.running is not None and not node.running.injected:
                self._daemons.standby_of[name] = True
