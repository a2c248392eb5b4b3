"""Writers, compactors, collectors and administrators update one manifest: no update is lost or applied twice."""

from shale.testing.database_invariants import DatabaseInvariants
from shale.testing.simulation import Simulation
from shale.testing.swarm import SimOptions
from tests.simulation.conftest import simulated
from tests.simulation.protocol import actors
from tests.simulation.protocol.manifest_processes import run_all_roles


@simulated
def test_concurrent_roles_lose_no_update(seed: int) -> None:
    run_all_roles(seed)


@simulated
def test_conflict_storms(seed: int) -> None:
    """Without faults, all processes write as fast as the store responds."""
    rows = actors.Rows()
    with Simulation(seed, options=SimOptions(latency_s=0.05)) as sim:
        rules = DatabaseInvariants(actors.ROOT)
        sim.watch(rules)
        writing = sim.start(actors.writer, "w", rows=rows, flushes=20, pause_s=0.1)
        sim.start(actors.compactor, "c", pause_s=0.2)
        sim.start(actors.admin, "a", pause_s=0.2)
        sim.run(minutes=10, until=lambda: writing.has_ended)
        rows.check(sim, rules.manifests.latest)
        sim.check_errors()
        assert len(rows.acknowledged) == 60


def test_a_seed_replays_exactly() -> None:
    assert run_all_roles(3) == run_all_roles(3)
