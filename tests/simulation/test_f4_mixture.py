"""Compactors, workers and a writer under a mixture of faults that the seed draws: no row of 16.4, and all of them."""

from shale.testing.simulation import Simulation
from tests.simulation.lsm import Load, compactor, worker, writer
from tests.simulation.reached import Reached, row
from tests.simulation.world import World


@row("somebody died", "a job was resumed", "a put was refused")
def test_compactors_under_a_mixture_of_faults(seed: int, reached: Reached) -> None:
    """Coordinators, workers and a writer that fail, freeze and die; healed, everything is done and every row there."""
    with Simulation(seed, swarm=True) as sim:
        world = World(sim)
        sim.restart_killed(60.0)
        loads = [Load(snapshots=True, segment=sim.rng.choice((b"", b"", b"a/", b"b/"))) for _ in range(14)]
        sim.start(writer, role="writer", flushes=0, pause_s=50.0, loads=tuple(loads))
        sim.run(minutes=10, until=lambda: world.rules.manifests.latest_id > 0)
        sim.start(compactor, "c", role="compactor")
        sim.start(worker, "w", role="worker")
        sim.run(minutes=20)
        reached("somebody died", when=any(process.is_killed for process in sim.processes))
        reached("a job was resumed", when=any(len(owners) > 1 for owners in world.owners().values()))
        reached("a put was refused", when=bool(sim.history.refusals))
        world.conclude()
