"""Compactors, workers and a writer under a mixture of faults drawn from the seed."""

from shale.testing.simulation import Simulation
from tests.simulation.compactor.lsm import Load, compactor, worker, writer
from tests.simulation.coverage_marks import CoverageMarks, row
from tests.simulation.world import World


@row("a process died", "a job was resumed", "a put was refused")
def test_compactors_under_a_mixture_of_faults(seed: int, reached: CoverageMarks) -> None:
    """Coordinators, workers and a writer fail, freeze and die; afterwards all work is done and every row exists."""
    with Simulation(seed, swarm=True) as sim:
        world = World(sim)
        sim.restart_killed(60.0)
        loads = [Load(snapshots=True, segment=sim.rng.choice((b"", b"", b"a/", b"b/"))) for _ in range(14)]
        sim.start(writer, role="writer", flushes=0, pause_s=50.0, loads=tuple(loads))
        sim.run(minutes=10, until=lambda: world.rules.manifests.latest_id > 0)
        sim.start(compactor, "c", role="compactor")
        sim.start(worker, "w", role="worker")
        sim.run(minutes=20)
        reached("a process died", when=any(process.is_killed for process in sim.processes))
        reached("a job was resumed", when=any(len(owners) > 1 for owners in world.owners().values()))
        reached("a put was refused", when=bool(sim.history.refusals))
        world.conclude()
