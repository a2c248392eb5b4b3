"""All processes that change a manifest, at the same time."""

from shale.errors import FencedError, ObjectUpdateTimeout
from shale.testing.database_invariants import DatabaseInvariants
from shale.testing.simulation import Simulation
from shale.testing.swarm import SimOptions
from tests.simulation.protocol import actors


def run_all_roles(seed: int, options: SimOptions | None = None, minutes: int = 30) -> str:
    """Run one database with all roles; return the history's fingerprint."""
    rows = actors.Rows()
    with Simulation(seed, options=options, swarm=True) as sim:
        rules = DatabaseInvariants(actors.ROOT)
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
