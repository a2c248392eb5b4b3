"""Records the requests of simulated processes as events of the model ``schemas/models/BoundaryTrace.tla``."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from shale.testing.mutation_log import MutationLog
from shale.testing.simulation import Simulation
from tests.simulation.models.trace_check import first_deviations, literal
from tests.simulation.protocol.effects import TOY, Acknowledged, collector, contender, decode

Event: TypeAlias = tuple[str, str, int, bool, int]
"""What, process, id, whether it succeeded or found the file, number of the effect among those of the process."""

_NO_EFFECT = 999_999


class RequestLog(MutationLog):
    """A simulation's log that also keeps every request, in the order in which they took effect."""

    __slots__ = ("events", "sim")

    def __init__(self, sim: Simulation) -> None:
        super().__init__()
        self.sim = sim
        self.events: list[Event] = []

    def note_request(self, time_s: float, process: str, op: str, key: str, outcome: str) -> None:
        """See ``MutationLog``."""
        super().note_request(time_s, process, op, key, outcome)
        file_id, ok = TOY.parse(key) or 0, outcome == "ok"
        if key == TOY.boundary_key:
            value = int(self.sim.memory.objects[key].data) if key in self.sim.memory.objects else 0
            if op in {"get", "put"}:
                self.events.append(("read" if op == "get" else "advance", process, value, ok, _NO_EFFECT))
        elif op == "list":
            self.events.append(("list", process, 0, True, _NO_EFFECT))
        elif file_id and op == "get":
            self.events.append(("get", process, file_id, key in self.sim.memory.objects, _NO_EFFECT))
        elif file_id and op == "put":
            number = self._number(key, process) if ok else _NO_EFFECT
            self.events.append(("create", process, file_id, ok, number))
        elif file_id and op == "delete":
            self.events.append(("delete", process, file_id, True, _NO_EFFECT))

    def acknowledge(self, effect: str) -> None:
        """Record that a process reported an effect as committed."""
        process, _, number = effect.rpartition(".")
        self.events.append(("ack", process, 0, True, int(number)))

    def _number(self, key: str, process: str) -> int:
        """Return the number of the effect that a new file adds; the first file adds none."""
        done = decode(self.sim.memory.objects[key].data, key).done
        own = [name for name in done if name.rpartition(".")[0] == process]
        return int(own[-1].rpartition(".")[2]) if own else _NO_EFFECT


class _Reported(list[str]):
    def __init__(self, log: RequestLog) -> None:
        super().__init__()
        self._log = log

    def append(self, effect: str) -> None:
        super().append(effect)
        self._log.acknowledge(effect)


@dataclass(frozen=True)
class Trace:
    """The events of one simulation after the first file was created, by ``founder``."""

    events: tuple[Event, ...]
    founder: str
    collectors: frozenset[str]

    @property
    def writers(self) -> frozenset[str]:
        """The processes that commit."""
        return frozenset(event[1] for event in self.events) - self.collectors | {self.founder}


def record(seed: int, *, rounds: int = 6, min_age_ms: int = 60_000, hours: float = 2.0) -> Trace:
    """Simulate contenders and collectors under all faults; return their requests.

    Sleeps are long and ``min_age`` is short, so that writers meet files and boundaries that passed them.
    """
    with Simulation(seed, swarm=True) as sim:
        sim.two_phase = False  # the model has no commit records
        log = RequestLog(sim)
        sim.history = log
        acks = Acknowledged(effects=_Reported(log))
        sim.restart_killed(60)
        for number in range(3):
            pause_s = sim.rng.choice((1.0, 30.0, 300.0))
            sim.start(contender, f"p{number}", role="writer", acks=acks, rounds=rounds, pause_s=pause_s)
        for number in range(sim.rng.randint(1, 2)):
            sim.start(collector, f"gc{number}", role="gc", min_age_ms=min_age_ms, interval_s=20.0)
        contenders = [process for process in sim.processes if process.role == "writer"]
        sim.run(hours=hours, until=lambda: all(not process.is_running for process in contenders))
        collectors = frozenset(process.name for process in sim.processes if process.role == "gc")
        return _after_first(log.events, collectors)


def _after_first(events: list[Event], collectors: frozenset[str]) -> Trace:
    first = next(place for place, event in enumerate(events) if event[0] == "create" and event[2] == 1 and event[3])
    return Trace(tuple(events[first + 1 :]), events[first][1], collectors)


def deviations(traces: Sequence[Trace]) -> list[Event | None]:
    """Return the first event of each trace for which the model has no step; ``None`` if the trace is a run of it.

    Raises:
        CheckerMissing: TLC or Java is not there.
    """
    highest = max(event[2] for trace in traces for event in trace.events) + 1
    founders = ", ".join(literal(trace.founder) for trace in traces)
    return first_deviations(
        "BoundaryTrace",
        [trace.events for trace in traces],
        constants={"MaxId": highest, "MaxWrites": 10_000, "MaxLate": 0, "Mutation": "none"},
        definitions={
            "Founders": f"<<{founders}>>",
            "Writers": literal(frozenset().union(*(trace.writers for trace in traces))),
            "Collectors": literal(frozenset().union(*(trace.collectors for trace in traces))),
        },
    )
