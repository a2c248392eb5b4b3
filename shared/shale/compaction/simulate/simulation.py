"""Simulate a compaction policy: events are flushes, polls of the coordinator and ends of jobs, in order of time.

The writer is an open loop: a flush waits while there are too many L0s, and the next ones become due as if it had not.
The coordinator polls every ``poll_interval_s``, and at once when a job ends, as with an embedded worker.
"""

import heapq
from itertools import count

from shale.compaction.policies.scheduler import CompactionScheduler
from shale.compaction.simulate.compactor_model import CompactorModel, job_requests
from shale.compaction.simulate.database import SimulatedDatabase
from shale.compaction.simulate.result import SimulationResult, SimulationSample
from shale.compaction.simulate.rows import LiveKeys, RowSet
from shale.compaction.simulate.workload import Flush, KeyChooser, Workload
from shale.core.lazy_dataclass import dataclass
from shale.types import Compaction

_SAMPLES_MAX = 400
"""Number of samples; each one counts all live keys."""


@dataclass(frozen=True, slots=True)
class _Done:
    """The event of a finished job."""

    entry: Compaction
    output: RowSet


_POLL = "poll"
_Event = Flush | _Done | str


class CompactionSimulation:
    """One run of a policy with a workload."""

    def __init__(self, name: str, policy: CompactionScheduler, load: Workload, machine: CompactorModel) -> None:
        keys = KeyChooser(load)
        self._name, self._policy, self._load, self._machine = name, policy, load, machine
        self._flushes = keys.flushes()
        self._live = LiveKeys()
        initial = keys.initial()
        self._live.apply(initial)
        self._database = SimulatedDatabase(load, initial)
        self._events: list[tuple[float, int, _Event]] = []
        self._order = count()
        self._waiting: list[RowSet] = []
        self._now_s = self._next_sample_s = self._live_bytes = self._poll_due_s = 0.0
        self._samples: list[SimulationSample] = []
        self._flushed = self._compacted = self._read = self._stall_s = 0.0
        self._sources_s = self._space_s = self._space_weight_s = 0.0
        self._jobs = self._requests = self._sources_max = 0
        self._space_max = 1.0

    def run(self) -> SimulationResult:
        """Simulate the whole workload; flushes and jobs that are pending at its end are dropped."""
        self._push_flush()
        end_s = self._load.end_s
        while self._events and self._events[0][0] <= end_s:
            at_s, _, event = heapq.heappop(self._events)
            self._advance(at_s)
            self._handle(event)
        self._advance(end_s)
        self._record()
        return self._result(end_s)

    def _handle(self, event: _Event) -> None:
        match event:
            case Flush(rows=rows):
                self._waiting.append(rows)
                self._push_flush()
                self._flush_waiting()
            case _Done(entry=entry, output=output):
                sizes = self._database.input_bytes(entry)
                size = self._database.commit(entry, output, self._now_s)
                self._compacted += size
                self._requests += job_requests(sizes, size, self._machine.max_sst_bytes)
                self._flush_waiting()
                self._schedule()
            case _:
                self._schedule()

    def _flush_waiting(self) -> None:
        while self._waiting and len(self._database.tree.l0) < self._machine.l0_max_ssts:
            rows = self._waiting.pop(0)
            self._live.apply(rows)
            self._flushed += self._database.flush(rows, self._now_s)
        poll_s = self._machine.poll_interval_s
        poll_due_s = (self._now_s // poll_s + 1) * poll_s
        if poll_due_s > self._poll_due_s:
            self._poll_due_s = poll_due_s
            self._push(poll_due_s, _POLL)

    def _schedule(self) -> None:
        for entry in self._database.schedule(self._policy, self._machine.jobs, self._now_s):
            sizes, output = self._database.input_bytes(entry), self._database.output_of(entry)
            self._jobs += 1
            self._read += sum(sizes)
            self._push(self._now_s + sum(sizes) / self._machine.throughput_bytes_s, _Done(entry, output))

    def _advance(self, until_s: float) -> None:
        """Advance the time and accumulate the means; nothing else changes meanwhile."""
        span_s = until_s - self._now_s
        tree, stored = self._database.tree, self._database.stored_bytes
        sources = len(tree.l0) + len(tree.compacted)
        if self._now_s >= self._next_sample_s:
            self._live_bytes = self._live.count(self._now_s) * self._load.scale * self._load.row_bytes
            self._record()
            self._next_sample_s = self._now_s + self._load.end_s / _SAMPLES_MAX
        self._sources_s += sources * span_s
        self._sources_max = max(self._sources_max, sources)
        if self._live_bytes > 0:
            self._space_s += stored / self._live_bytes * span_s
            self._space_weight_s += span_s
            self._space_max = max(self._space_max, stored / self._live_bytes)
        self._stall_s += span_s if self._waiting else 0.0
        self._now_s = until_s

    def _record(self) -> None:
        tree = self._database.tree
        self._samples.append(
            SimulationSample(
                at_s=self._now_s,
                l0_count=len(tree.l0),
                run_count=len(tree.compacted),
                stored_bytes=self._database.stored_bytes,
                live_bytes=self._live_bytes,
                compacted_bytes=self._compacted,
                is_stalled=bool(self._waiting),
            )
        )

    def _push_flush(self) -> None:
        flush = next(self._flushes, None)
        if flush is not None:
            self._push(flush.due_s, flush)

    def _push(self, at_s: float, event: _Event) -> None:
        heapq.heappush(self._events, (at_s, next(self._order), event))

    def _result(self, end_s: float) -> SimulationResult:
        written = float(sum(size for _, size in self._load.due))
        tree = self._database.tree
        return SimulationResult(
            policy=self._name,
            duration_s=end_s,
            written_bytes=written,
            flushed_bytes=self._flushed,
            compacted_bytes=self._compacted,
            read_bytes=self._read,
            write_amplification=(self._flushed + self._compacted) / written,
            read_amplification=self._sources_s / end_s,
            read_amplification_max=self._sources_max,
            space_amplification=self._space_s / self._space_weight_s if self._space_weight_s else 1.0,
            space_amplification_max=self._space_max,
            stall_s=self._stall_s,
            jobs=self._jobs,
            requests=self._requests,
            left_l0=len(tree.l0),
            left_runs=len(tree.compacted),
            samples=tuple(self._samples),
        )


def simulate(name: str, policy: CompactionScheduler, load: Workload, machine: CompactorModel) -> SimulationResult:
    """Simulate a policy with a workload."""
    return CompactionSimulation(name, policy, load, machine).run()
