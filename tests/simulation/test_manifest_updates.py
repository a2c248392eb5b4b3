"""Writers, compactors, collectors and admins on one manifest, under every fault: nothing is lost, nothing doubled."""

from shale.errors import FencedError, ObjectUpdateTimeout
from shale.testing.database_rules import DatabaseRules
from shale.testing.simulation import Simulation
from shale.testing.swarm import SimOptions
from tests.simulation import actors
from tests.simulation.conftest import simulated


def everybody(seed: int, options: SimOptions | None = None, minutes: int = 30) -> str:
    """One database with all roles; returns the history's fingerprint."""
    rows = actors.Rows()
    with Simulation(seed, options=options, swarm=True) as sim:
        rules = DatabaseRules(sim, actors.ROOT)
        sim.watch(rules)
        sim.restart_killed(30)
        sim.start(actors.writer, "w", rows=rows, flushes=minutes)
        sim.start(actors.compactor, "c")
        sim.start(actors.admin, "a")
        sim.start(actors.collector, "gc", role="gc")
        if sim.rng.random() < 0.5:
            sim.at(sim.rng.uniform(0, 300), lambda: sim.start(actors.writer, "w2", role="writer", rows=rows, flushes=9))
            sim.at(sim.rng.uniform(0, 300), lambda: sim.start(actors.compactor, "c2", role="compactor"))
        sim.run(minutes=minutes)
        sim.heal()
        sim.run(minutes=3)
        sim.check_errors(FencedError, ObjectUpdateTimeout)  # a sleep may outlast the limit for a claim
        rows.check(sim, rules.manifests.latest)
        return sim.history.fingerprint


@simulated
def test_everybody_at_once(seed: int) -> None:
    everybody(seed)


@simulated
def test_conflict_storms(seed: int) -> None:
    """No faults, but everybody writes as fast as the store answers."""
    rows = actors.Rows()
    with Simulation(seed, options=SimOptions(latency_s=0.05)) as sim:
        rules = DatabaseRules(sim, actors.ROOT)
        sim.watch(rules)
        writing = sim.start(actors.writer, "w", rows=rows, flushes=20, pause_s=0.1)
        sim.start(actors.compactor, "c", pause_s=0.2)
        sim.start(actors.admin, "a", pause_s=0.2)
        sim.run(minutes=10, until=lambda: writing.has_ended)
        rows.check(sim, rules.manifests.latest)
        sim.check_errors()
        assert len(rows.acknowledged) == 60


def test_a_seed_replays_exactly() -> None:
    assert everybody(3) == everybody(3)
