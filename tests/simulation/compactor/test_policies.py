"""Compaction policies lose no row when processes fail, freeze and die.

Source: docs/how-to/compaction-policies.md.
"""

from dataclasses import replace

from shale.compaction.policies.leveled import Leveled
from shale.compaction.policies.time_window import TimeWindow
from shale.testing.sim_process import START_MS
from shale.testing.simulation import Simulation
from shale.types import TieredSpec
from shale_compactor.coordinator.options import CoordinatorOptions
from tests.simulation.compactor.lsm import OPTIONS, Load, compactor, worker, writer
from tests.simulation.coverage_marks import CoverageMarks, row
from tests.simulation.world import World

POLICIES = (
    Leveled(min_compaction_sources=2, max_compaction_sources=4, level_base_bytes=600, level_size_multiplier=2.0),
    TimeWindow(min_compaction_sources=2, max_compaction_sources=4, window_s=120.0, max_windows=3),
    TimeWindow(min_compaction_sources=2, max_compaction_sources=4, window_s=60.0, max_windows=9, default_ttl_s=300.0),
)


@row("L0s went into a run that was there", "runs were merged", "one run was rewritten", "a process died")
def test_every_policy_keeps_every_row(seed: int, reached: CoverageMarks) -> None:
    """A writer flushes for a quarter of an hour beside failing compactors; after the faults every row exists."""
    with Simulation(seed, swarm=True) as sim:
        world = World(sim)
        policy = sim.rng.choice(POLICIES)
        options = replace(OPTIONS, coordinator=CoordinatorOptions(scheduler=policy))
        sim.restart_killed(60.0)
        start_ms = START_MS + int(sim.loop.time() * 1000)
        loads = [
            Load(
                snapshots=sim.rng.random() < 0.5,
                segment=sim.rng.choice((b"", b"", b"a/")),
                expire_ts=(None, start_ms + 400_000),
                clock_tick=start_ms + 45_000 * number,
            )
            for number in range(20)
        ]
        sim.start(writer, role="writer", flushes=0, pause_s=45.0, loads=tuple(loads))
        sim.run(minutes=10, until=lambda: world.rules.manifests.latest_id > 0)
        sim.start(compactor, "c", role="compactor", options=options)
        sim.start(worker, "w", role="worker")
        sim.run(minutes=20)
        world.conclude(options)
        specs = [
            entry.spec
            for value in world.rules.compactions.versions.values()
            for entry in value.entries
            if isinstance(entry.spec, TieredSpec)
        ]
        reached("L0s went into a run that was there", when=any(s.l0_view_ids and s.sorted_runs for s in specs))
        reached("runs were merged", when=any(len(s.sorted_runs) > 1 for s in specs))
        reached("one run was rewritten", when=any(len(s.sorted_runs) == 1 and not s.l0_view_ids for s in specs))
        reached("a process died", when=any(process.is_killed for process in sim.processes))
