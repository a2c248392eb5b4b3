"""Whoever checks a database at work reports nothing: everything changes under him, and nothing of it is damage."""

import anyio

from shale.admin.verify.whole import Checked, VerifyOptions, verify_database
from shale.errors import CorruptionError, InvalidClockTick, ShaleError
from shale.sst.verify.finding import Finding
from shale.testing.simulation import SimProcess, Simulation
from tests.simulation.conftest import simulated_slowly
from tests.simulation.lsm import compactor
from tests.simulation.neighbours import pinner
from tests.simulation.row_model import RowModel
from tests.simulation.test_whole_system import EXPECTED, collector
from tests.simulation.writers import writer


async def checker(process: SimProcess, found: list[Finding], done: list[int], *, interval_s: float = 20.0) -> None:
    """Check again and again, every other time to the last row."""
    checked = Checked(store=process.store, wal_store=None, root="db", env=process.env)
    while True:
        await anyio.sleep(process.rng.uniform(0, interval_s))
        try:
            report = await verify_database(checked, VerifyOptions(deep=process.rng.random() < 0.5))
        except CorruptionError:
            raise
        except ShaleError:
            continue  # no database yet, or a store that gave up
        found += report.findings
        done.append(report.ssts)


@simulated_slowly
def test_nothing_is_reported_beside_everybody(seed: int) -> None:
    found, done = list[Finding](), list[int]()
    with Simulation(seed, swarm=True) as sim:
        sim.restart_killed(30.0)
        for number in range(2):
            sim.at(
                number * 200.0,
                lambda name=f"w{number}": sim.start(
                    writer, name, role="writer", model=RowModel(), rounds=60, pause_s=10.0, close="memtable"
                ),
            )
        sim.at(5.0, lambda: sim.start(compactor, "c", role="compactor"))
        # Takes everything that may go at once.
        sim.at(10.0, lambda: sim.start(collector, "gc", role="gc", min_age_s=0.0, interval_s=10.0))
        sim.start(pinner, "a", role="admin", rounds=20, pause_s=30.0)
        for name in ("v1", "v2"):
            sim.start(checker, name, role="admin", found=found, done=done)
        sim.run(minutes=10)
        sim.heal()
        sim.run(minutes=2)
        sim.kill_all()
        assert found == []
        assert len(done) > 5
        sim.check_errors(*EXPECTED, *((InvalidClockTick,) if sim.options.skew_ms else ()))
