"""A simulated database under all rules, and checks that rows of docs/reference/protocol.md 16.4 share."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence

from shale.format.names import parse_sst_key
from shale.protocol.manifest_invariants import newest_l0_ms
from shale.testing.database_invariants import DatabaseInvariants
from shale.testing.mutation_log import Mutation
from shale.testing.sim_network import HookPoint
from shale.testing.simulation import SimProcess, Simulation
from shale.types import Compaction, Compactions, CompactionStatus, Entry, Manifest, Ulid
from shale_compactor.compactor import CompactorOptions
from tests.simulation.compactor.lsm import OPTIONS, PASSIVE, ROOT, SCHEDULER, Load, compactor, l0_promoter, writer
from tests.simulation.gc.harness import collect_once, quick
from tests.simulation.row_rules import RowRules

S = CompactionStatus
_CHECKPOINTS_EXPIRE_S = 2000.0


class World:
    """A simulation with the rules of a database.

    Args:
        rows: whether every manifest must show every row; off where a test compares them itself.
        pins: commits must pin their inputs by the clocks of all processes.
        union: L0s may be listed twice, as in a union that SlateDB made.
    """

    def __init__(self, sim: Simulation, *, rows: bool = True, union: bool = False, pins: bool = True) -> None:
        self.sim = sim
        self.rules = DatabaseInvariants(ROOT, union=union, pins=pins)
        self.rows = RowRules(self.rules.manifests)
        self._checks_rows = rows
        sim.watch(self.rules, *((self.rows,) if rows else ()))

    @property
    def manifest(self) -> Manifest:
        return self.rules.manifests.latest

    @property
    def compactions(self) -> Compactions:
        return self.rules.compactions.latest if self.rules.compactions.latest_id else Compactions()

    def filled(self, flushes: int, load: Load | None = None, *, loads: Sequence[Load] = ()) -> "World":
        """Write some L0s without faults before the test starts."""
        chosen = load if load is not None else Load(snapshots=True)
        process = self.sim.start(
            writer, "first", role="writer", flushes=flushes, pause_s=1.0, load=chosen, loads=tuple(loads)
        )
        self.sim.run(hours=1)
        assert process.error is None
        return self

    def layered(self, runs: int, *, gap: int = 1) -> "World":
        """Turn the oldest L0s into runs."""
        process = self.sim.start(l0_promoter, "l0_promoter", role="compactor", runs=runs, gap=gap)
        self.sim.run(hours=1)
        assert process.error is None
        return self

    def versions_of(self, job: Ulid) -> Iterator[Compaction]:
        """Return all versions of a job in the compactions file, in order."""
        for file_id in sorted(self.rules.compactions.versions):
            entry = self.rules.compactions.versions[file_id].get(job)
            if entry is not None:
                yield entry

    def path_of(self, job: Ulid) -> list[CompactionStatus]:
        """Return the states of a job, without repetitions."""
        path: list[CompactionStatus] = []
        for entry in self.versions_of(job):
            if not path or path[-1] is not entry.status:
                path.append(entry.status)
        return path

    def outcome(self, job: Ulid) -> CompactionStatus:
        """Return the last state of a job."""
        return self.path_of(job)[-1]

    def has(self, job: Ulid, *states: CompactionStatus) -> bool:
        """Return whether the job is in one of these states."""
        entry = self.compactions.get(job)
        return entry is not None and entry.status in states

    def any_in(self, *states: CompactionStatus) -> bool:
        """Return whether any job is in one of these states."""
        return any(entry.status in states for entry in self.compactions.entries)

    def pause_at(self, process: SimProcess, op: str, key_part: str, seconds: float, *, skip: int = 0) -> None:
        """Freeze a process before it sends a request, and let ``sim.run`` return then."""

        def pause() -> None:
            process.freeze(seconds)
            self.sim.pause()

        process.network.hook(HookPoint.BEFORE, op, key_part, pause, skip=skip)

    def run_until(self, condition: Callable[[], bool], *, minutes: float = 10.0, why: str = "") -> None:
        """Let time pass until the condition holds; fail if it never does."""
        self.sim.run(minutes=minutes, until=condition)
        assert condition(), f"{why or 'it never happened'}: {self.compactions.entries}"

    def fail_in(self, successor: Callable[..., Awaitable[None]], job: Ulid) -> None:
        """Start the next coordinator or compactor, which must fail the job."""
        self.sim.start(successor, "heir", role="compactor", options=PASSIVE)
        self.run_until(lambda: self.has(job, S.COMPLETED, S.FAILED))
        assert self.outcome(job) is S.FAILED

    def is_settled(self) -> bool:
        """Return whether no job is active and too few L0s are left for another compaction."""
        return self.is_idle() and len(self.manifest.tree.l0) < SCHEDULER.min_compaction_sources

    def is_idle(self) -> bool:
        """Return whether no writer runs and no job is active."""
        busy = any(process.is_running and process.role == "writer" for process in self.sim.processes)
        active = any(entry.is_active for entry in self.compactions.entries)
        return self.compactions.compactor_epoch > 0 and not busy and not active

    def settle(self, options: CompactorOptions = OPTIONS) -> None:
        """End the faults, start a new compactor, and wait until it has completed all work."""
        done = self.is_settled if options.coordinator.scheduler is OPTIONS.coordinator.scheduler else self.is_idle
        self.sim.heal()
        process = self.sim.start(compactor, "last", role="compactor", options=options)
        self.sim.run(hours=6, until=lambda: self.compactions.compactor_epoch > 0 and process.is_running and done())
        assert done(), f"still to do: {self.compactions.entries} over {len(self.manifest.tree.l0)} L0s"
        finished = [entry for entry in self.compactions.entries if not entry.is_active]
        assert len(finished) <= 1, f"finished entries pile up: {finished}"
        if self._checks_rows:
            self.rows.check(self.sim, self.manifest)

    def conclude(self, options: CompactorOptions = OPTIONS) -> None:
        """Settle, stop all processes, and run the collector: only objects in use are left (16.8)."""
        self.settle(options)
        self.sim.kill_all()
        last = self.sim.start(
            collect_once, "cleaner", role="gc", options=quick(), at_s=self.sim.loop.time() + _CHECKPOINTS_EXPIRE_S
        )
        self.sim.run(hours=2)
        assert last.error is None, last.error
        assert not self.manifest.checkpoints, "expired checkpoints stay"
        bound_ms = min([newest_l0_ms(self.manifest), *(entry.id.ms for entry in self.compactions.entries)])
        for key in self.sim.objects(f"{ROOT}/compacted/"):
            sst_id = parse_sst_key(ROOT, key)
            assert sst_id is not None
            assert sst_id.ms >= bound_ms or sst_id in self.manifest.ssts(), f"garbage stays: {key}"

    def owners(self) -> dict[int, Sequence[str]]:
        """Return the processes that ran each compaction, in order."""
        owners: dict[int, list[str]] = defaultdict(list)
        for version in self.rules.compactions.versions.values():
            for entry in version.entries:
                if entry.worker is not None and entry.worker.worker_id not in owners[entry.id]:
                    owners[entry.id].append(entry.worker.worker_id)
        return dict(owners)

    def rows_of_run(self, run_id: int) -> list[Entry]:
        """Return the rows of a run of the root tree, in the order of its SSTs."""
        (run,) = (run for run in self.manifest.tree.compacted if run.id == run_id)
        return self.rows.rows_of(self.sim, run.ssts)

    def stored_rows(self) -> list[Entry]:
        """Return every row of the root tree, by key and descending sequence number."""
        return sorted(self.rows.rows_of(self.sim, self.manifest.tree.views()), key=lambda row: (row.key, -row.seq))

    def live_manifests(self) -> Iterator[Mutation]:
        """Return the mutations that became versions of the manifest, without those that landed below the boundary."""
        return self._live("/manifest/")

    def live_compactions(self) -> Iterator[Mutation]:
        """Return the same for the compactions."""
        return self._live("/compactions/")

    def _live(self, part: str) -> Iterator[Mutation]:
        rules = self.rules.manifests if part == "/manifest/" else self.rules.compactions
        for mutation in self.sim.history.of(part):
            file_id = rules.namespace.parse(mutation.key)
            if mutation.op != "delete" and file_id is not None and file_id not in rules.zombies:
                yield mutation


def running(sim: Simulation, role: str) -> list[SimProcess]:
    return [process for process in sim.running if process.role == role]
