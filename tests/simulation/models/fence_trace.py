"""Records the requests of simulated writers as events of the model ``schemas/models/FenceTrace.tla``."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import anyio

from shale.engine.wal.file import decode_wal_file
from shale.env import Env
from shale.format.manifest import decode_manifest
from shale.format.names import manifest_prefix, parse_manifest_key, parse_wal_key
from shale.testing.mutation_log import MutationLog
from shale.testing.sim_process import SimProcess
from shale.testing.simulation import Simulation
from tests.simulation.background_actors import eager_collector, l0_promoter
from tests.simulation.models.trace_check import first_deviations, literal
from tests.simulation.writer.writers import open_db, reader_of_all

Row: TypeAlias = tuple[str, int]
"""The rows of a WAL file, as one: the process that wrote it, and its place among the files of this process."""
Event: TypeAlias = tuple[str, str, int, int, frozenset[Row]]
"""What, process, id, number, rows; see the model."""

MIN_AGE_S = 300.0
"""More than ``wal_stall_limit`` and the longest way of a request."""
_NO_FILE = 999_999
_READS_MAX = 3
"""Successive reads of one process that are kept; a writer needs at most two."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request that took effect, or the acknowledgement of the row with sequence number ``id``."""

    what: str
    process: str
    id: int = 0
    data: bytes = b""


class RequestLog(MutationLog):
    """A simulation's log that also keeps the requests to the manifest and the WAL, in the order of their effects."""

    __slots__ = ("requests_seen", "sim")

    def __init__(self, sim: Simulation) -> None:
        super().__init__()
        self.sim = sim
        self.requests_seen: list[Request] = []

    def note_request(self, time_s: float, process: str, op: str, key: str, outcome: str) -> None:
        """See ``MutationLog``."""
        super().note_request(time_s, process, op, key, outcome)
        what, file_id = None, 0
        if op == "put" and parse_manifest_key("db", key) is not None:
            what = "commit" if outcome == "ok" else None
        elif op != "put" and key.startswith(manifest_prefix("db")):
            what = "read"
        elif (wal_id := parse_wal_key("db", key)) is not None and op in {"put", "delete"}:
            what = "delete" if op == "delete" else "file" if outcome == "ok" else "refused"
            file_id = wal_id
        if what is not None:
            data = self.sim.memory.objects[key].data if what in {"commit", "file"} else b""
            self.requests_seen.append(Request(what, process, file_id, bytes(data)))

    def acknowledge(self, process: str, seq: int) -> None:
        """Record that a row was reported as durable."""
        self.requests_seen.append(Request("ack", process, seq))


@dataclass(frozen=True)
class Trace:
    """The events of one simulation after the database was created."""

    events: tuple[Event, ...]
    writers: frozenset[str]


async def client(
    process: SimProcess, log: RequestLog, *, rounds: int = 8, pause_s: float = 1.0, **settings: Any
) -> None:
    """Open, write durable rows one by one with some flushes of the memtable, and close."""
    async with open_db(process, **{"flush_interval": 0, "manifest_poll_interval": "5s"} | settings) as db:
        for number in range(rounds):
            handle = await db.put(b"key-%d" % process.rng.randrange(8), b"%s/%d" % (process.name.encode(), number))
            await handle.durable()
            log.acknowledge(process.name, handle.seq)
            if process.rng.random() < 0.3:
                await db.flush("memtable")
            await anyio.sleep(process.rng.uniform(0, pause_s))


def record(seed: int) -> Trace:
    """Simulate writers that open one database under all faults, and a collector that also deletes fences."""
    with Simulation(seed, swarm=True) as sim:
        log = _watch(sim)
        sim.restart_killed(60)
        for number in range(sim.rng.randint(2, 3)):
            pause_s = sim.rng.choice((1.0, 30.0, 300.0))
            start = partial(sim.start, client, f"w{number}", role="writer", log=log, pause_s=pause_s)
            sim.at(sim.rng.choice((1.0, 30.0, 1000.0)) * sim.rng.random(), start)
        sim.start(eager_collector, "gc", role="gc", rounds=10_000, pause_s=40.0, fences=True, min_age_s=MIN_AGE_S)
        if sim.rng.random() < 0.5:
            sim.start(l0_promoter, "compactor", role="compactor", rounds=200, pause_s=20.0)
        sim.run(hours=2, until=lambda: not any(process.role == "writer" for process in sim.running))
        return _finished(sim, log)


def record_stall(**settings: Any) -> Trace:
    """Simulate a writer that sleeps before a put until its slot is free again: the fence in it was collected."""
    with Simulation(1) as sim:
        log = _watch(sim)
        old = sim.start(client, "old", role="writer", log=log, rounds=10_000, **settings)
        old.freeze_before("put", "/wal/", 6 * MIN_AGE_S, skip=4)
        sim.run(seconds=20)
        sim.start(client, "new", role="writer", log=log, rounds=20, pause_s=2 * MIN_AGE_S / 20)
        sim.start(eager_collector, "gc", role="gc", rounds=10_000, pause_s=5.0, fences=True, min_age_s=MIN_AGE_S)
        sim.run(hours=1)
        return _finished(sim, log)


def _watch(sim: Simulation) -> RequestLog:
    sim.two_phase = False  # the model has no commit records
    log = RequestLog(sim)
    sim.history = log
    return log


def _finished(sim: Simulation, log: RequestLog) -> Trace:
    """Open the database once more, and return the trace."""
    sim.heal()
    sim.run(hours=1)
    sim.start(reader_of_all, "last", role="writer")
    sim.run(minutes=10)
    writers = frozenset(process.name for process in sim.processes if process.role == "writer")
    return Trace(tuple(_without_repeated_reads(_Events(writers, sim.processes[0].env).of(log.requests_seen))), writers)


@dataclass(slots=True)
class _Events:
    """Turns requests into events of the model."""

    writers: frozenset[str]
    env: Env
    files: dict[Row, range] = field(default_factory=dict)
    """The sequence numbers of the rows of each WAL file."""
    numbers: dict[tuple[str, int], int] = field(default_factory=dict)
    """The number of each WAL file, by process and id."""

    def of(self, requests: Sequence[Request]) -> Iterator[Event]:
        """Yield the events after the first manifest, which its creator knows as if it had read it."""
        first = next(place for place, request in enumerate(requests) if request.what == "commit")
        yield self._event(Request("read", requests[first].process))
        for request in requests[first + 1 :]:
            if request.process in self.writers or request.what != "read":
                yield self._event(request)

    def _event(self, request: Request) -> Event:
        what, process, file_id = request.what, request.process, request.id
        if what == "commit":
            manifest = decode_manifest(request.data)
            unflushed = frozenset(row for row, seqs in self.files.items() if seqs[-1] > manifest.last_l0_seq)
            return (what, process, manifest.replay_after_wal_id, manifest.writer_epoch, unflushed)
        if what == "ack":
            found = (row[1] for row, seqs in self.files.items() if row[0] == process and file_id in seqs)
            return (what, process, 0, next(found, _NO_FILE), frozenset())
        if what == "file":
            if not request.data:
                return ("fence", process, file_id, 0, frozenset())
            return ("append", process, file_id, self._number(request), frozenset())
        return (what, process, file_id, 0, frozenset())

    def _number(self, request: Request) -> int:
        of_process = sum(process == request.process for process, _ in self.numbers)
        number = self.numbers.setdefault((request.process, request.id), of_process)
        seqs = anyio.run(decode_wal_file, memoryview(request.data), "", self.env).seq
        self.files[request.process, number] = range(int(seqs[0]), int(seqs[-1]) + 1)
        return number


def _without_repeated_reads(events: Iterator[Event]) -> Iterator[Event]:
    """Leave reads out that follow enough others of the same process: nothing has changed meanwhile."""
    reads: dict[str, int] = {}
    for event in events:
        what, process = event[:2]
        if what == "read":
            reads[process] = reads.get(process, 0) + 1
            if reads[process] > _READS_MAX:
                continue
        elif what == "refused":
            reads[process] = 0
        else:
            reads.clear()
        yield event


def deviations(traces: Sequence[Trace]) -> list[Event | None]:
    """Return the first event of each trace for which the model has no step; ``None`` if the trace is a run of it.

    Raises:
        CheckerMissing: TLC or Java is not there.
    """
    highest = max(event[2] for trace in traces for event in trace.events) + 1
    return first_deviations(
        "FenceTrace",
        [trace.events for trace in traces],
        constants={"MaxSlot": highest, "MaxRows": 10_000, "CollectsFences": True, "Mutation": "none"},
        definitions={"Writers": literal(frozenset().union(*(trace.writers for trace in traces)))},
    )
