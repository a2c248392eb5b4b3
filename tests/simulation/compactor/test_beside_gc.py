"""The compactor beside a collector without a minimum age.

Source: docs/reference/protocol.md 16.4.
"""

import random

import pytest

from shale.testing.mutation_log import Mutation
from shale.testing.sim_network import HookPoint
from shale.testing.simulation import SimProcess, Simulation
from shale.testing.swarm import SimOptions
from shale.types import CompactionStatus
from tests.simulation.compactor.lsm import MANY, Load, compactor, coordinator, worker, writer
from tests.simulation.coverage_marks import CoverageMarks, row
from tests.simulation.gc.harness import collect_once, collector, quick
from tests.simulation.world import World

S = CompactionStatus
BEHIND_MS = 600_000


def deleted_ssts(sim: Simulation) -> list[Mutation]:
    return [mutation for mutation in sim.history.of("/compacted/") if mutation.op == "delete"]


@pytest.mark.fault("F4.21")
@row("outputs carry the job's time", "a sweep between upload and commit", "a sweep deleted something")
def test_outputs_of_a_worker_whose_clock_lags_are_not_collected(seed: int, reached: CoverageMarks) -> None:
    """Outputs are dated by the job, not by the worker's clock; otherwise they would look older than the job."""
    chance = random.Random(seed)
    with Simulation(seed) as sim:
        world = World(sim).filled(6, MANY)
        sim.start(coordinator, "boss", role="compactor")
        hand = sim.start(worker, "hand", role="worker")
        hand.clock.skew_ms = -BEHIND_MS
        for number in range(30):
            hand.network.hook(
                HookPoint.AFTER, "put", "/compacted/", lambda: hand.freeze(chance.uniform(0, 4)), skip=number
            )
        sim.start(collector, role="gc", options=quick(min_age_s=0.0, interval_s=2.5))
        sim.start(writer, "second", role="writer", flushes=3, pause_s=15.0, load=MANY)
        sim.run(minutes=10, until=world.is_settled)
        assert world.is_settled()
        assert hand.error is None
        outputs = [mutation for mutation in sim.history.of("/compacted/") if mutation.process == "hand"]
        assert outputs
        jobs_ms = {entry.id.ms for v in world.rules.compactions.versions.values() for entry in v.entries}
        made_ms = {sst.id.ms for entry in finished_outputs(world) for sst in entry}
        reached("outputs carry the job's time", when=bool(made_ms & jobs_ms))
        passes = [mutation.time_s for mutation in sim.history.mutations if mutation.process == "gc"]
        commits = [each.time_s for each in world.live_manifests() if each.process == "boss"]
        first, last = outputs[0].time_s, commits[-1] if commits else 0.0
        reached("a sweep between upload and commit", when=any(first < time_s < last for time_s in passes))
        world.conclude()
        reached("a sweep deleted something", when=bool(deleted_ssts(sim)))


def finished_outputs(world: World) -> list:
    """Return the outputs of every job that a worker finished."""
    versions = world.rules.compactions.versions.values()
    return [entry.output_ssts for version in versions for entry in version.entries if entry.status is S.COMPACTED]


@pytest.mark.fault("F4.22")
@row("a later job has a lower id", "a sweep deleted something", "the jump met a running job")
def test_a_coordinator_clock_that_jumps_back_deletes_nothing_live(seed: int, reached: CoverageMarks) -> None:
    """The ids of its jobs decrease, so a collector only becomes more conservative."""
    chance = random.Random(seed)
    with Simulation(seed) as sim:
        world = World(sim, pins=False).filled(4, MANY)
        boss = sim.start(compactor, "boss", role="compactor")
        sim.start(collector, role="gc", options=quick(min_age_s=0.0, interval_s=4.0))
        sim.start(writer, "second", role="writer", flushes=8, pause_s=10.0, load=Load(keys=20, rows_max=12))
        met: list[bool] = []

        def jump() -> None:
            boss.clock.skew_ms -= 3_600_000
            met.append(world.any_in(S.SUBMITTED, S.SCHEDULED, S.RUNNING, S.COMPACTED))

        if chance.random() < 0.5:
            boss.network.hook(HookPoint.BEFORE, "put", "/compacted/", jump, skip=chance.randrange(6))
        else:
            sim.at(chance.uniform(1, 60), jump)
        sim.run(minutes=10, until=world.is_settled)
        assert world.is_settled()
        assert boss.error is None
        in_order = list(dict.fromkeys(jobs_in_order(world)))
        reached("a later job has a lower id", when=in_order != sorted(in_order))
        reached("the jump met a running job", when=any(met))
        world.conclude()
        reached("a sweep deleted something", when=bool(deleted_ssts(sim)))


def jobs_in_order(world: World) -> list[int]:
    """Return the id of every job, in the order of its first appearance in the file."""
    versions = world.rules.compactions.versions
    return [int(entry.id) for file_id in sorted(versions) for entry in versions[file_id].entries]


class SweepAfterEveryWrite:
    """Starts one pass of a collector without a minimum age after each version of either file."""

    def __init__(self, victim: SimProcess) -> None:
        self.victim = victim
        self.swept = 0

    def after(self, mutation: Mutation, sim: Simulation) -> None:
        """See ``Invariants``."""
        versions = ("/manifest/", "/compactions/")
        if mutation.process == self.victim.name and any(part in mutation.key for part in versions):
            self.swept += 1
            sim.start(collect_once, f"gc{self.swept}", role="gc", options=quick(min_age_s=0.0))


@pytest.mark.fault("F4.27")
@row("whole sweeps between two writes", "sweeps that overlap the writes", "a sweep deleted something")
def test_a_gc_pass_between_each_pair_of_writes_deletes_nothing_live(seed: int, reached: CoverageMarks) -> None:
    """A collector may run between any two writes of the coordinator and deletes no referenced object."""
    chance = random.Random(seed)
    with Simulation(seed, options=SimOptions(latency_s=chance.choice((0.01, 0.2)))) as sim:
        world = World(sim).filled(4, Load(keys=20, rows_max=12, snapshots=True))
        boss = sim.start(coordinator, "boss", role="compactor")
        sim.start(worker, "hand", role="worker")
        sweeps = SweepAfterEveryWrite(boss)
        sim.watch(sweeps)
        stands_still = chance.random() < 0.5
        if stands_still:
            for part in ("/manifest/", "/compactions/"):
                for number in range(30):
                    boss.network.hook(HookPoint.AFTER, "put", part, lambda: boss.freeze(4.0), skip=number)
        sim.start(writer, "second", role="writer", flushes=4, pause_s=20.0)
        sim.run(minutes=10, until=world.is_settled)
        assert world.is_settled()
        assert boss.error is None
        assert sweeps.swept > 4
        reached("whole sweeps between two writes", when=stands_still)
        reached("sweeps that overlap the writes", when=not stands_still)
        world.conclude()
        reached("a sweep deleted something", when=bool(deleted_ssts(sim)))
