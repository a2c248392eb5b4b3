"""Writers with a compactor and a collector beside them, under kills, freezes and fences.

Source: docs/reference/protocol.md 6, 8, 14.1.
"""

import anyio
import pytest

from shale.engine.embedded_defaults import EmbeddedDefaults
from shale.errors import WrongType
from shale.testing.database_invariants import DatabaseInvariants
from shale.testing.sim_process import SimProcess
from shale.testing.simulation import Simulation
from tests.simulation.compactor import lsm
from tests.simulation.conftest import simulated, simulated_slowly
from tests.simulation.row_model import RowModel
from tests.simulation.writer.writers import final_rows, open_db, put, writer

ROLES = "writer+compactor+gc"
SERVICES = {"compactor": True, "gc": True, "l0_sst_size_bytes": 400, "l0_max_ssts": 8, "l0_max_ssts_per_key": 8}


@pytest.mark.slow
@simulated
def test_swarm_of_writers_with_services(seed: int) -> None:
    """Under all faults nothing acknowledged is lost, and L0 never stays full."""
    _run_swarm(seed)


@pytest.mark.parametrize("seed", [73, 99])
def test_a_writer_that_was_frozen_longer_than_its_checkpoint_lives(seed: int) -> None:
    """Its compactor commits, or its collector removes the checkpoint first."""
    _run_swarm(seed)


def _run_swarm(seed: int) -> None:
    with Simulation(seed, swarm=True) as sim:
        rules = DatabaseInvariants("db")
        sim.watch(rules)
        model = RowModel()
        sim.restart_killed(30.0)
        for number in range(sim.rng.randint(1, 3)):
            sim.at(
                sim.rng.uniform(0, 60),
                lambda name=f"w{number}": sim.start(
                    writer, name, role=ROLES, model=model, rounds=60, pause_s=4.0, **SERVICES
                ),
            )
        sim.run(hours=4)
        model.check(final_rows(sim, compactor=False, gc=False))


@simulated_slowly
def test_a_writer_alone_keeps_its_directory_small(seed: int) -> None:
    """After updates: few L0s, no old inputs, no replayed WAL files, no old versions."""

    async def updates(process: SimProcess, model: RowModel) -> None:
        async with open_db(process, **SERVICES) as db:
            for number in range(100):
                await put(db, model, process.name, b"key-%d" % process.rng.randrange(20), b"%d" % number + bytes(60))
                await anyio.sleep(5.0)
            model.durable_through(process.name, db.status.durable_seq)
            await anyio.sleep(300)
            model.durable_through(process.name, db.status.durable_seq)

    with Simulation(seed) as sim:
        sim.watch(DatabaseInvariants("db"))
        model = RowModel()
        alone = sim.start(updates, "alone", role=ROLES, model=model)
        sim.run(hours=2)
        assert alone.error is None, alone.error
        assert len(sim.objects("db/compacted/")) < 40
        assert len(sim.objects("db/wal/")) < 80
        assert len(sim.objects("db/manifest/")) < 100
        model.check(final_rows(sim, compactor=False, gc=False))


@pytest.mark.slow
@simulated
def test_a_daemon_takes_over_from_the_compactor_of_a_writer(seed: int) -> None:
    """Neither ends with an error, and the daemon has the epoch at the end."""
    with Simulation(seed) as sim:
        rules = DatabaseInvariants("db")
        sim.watch(rules)
        model = RowModel()
        one = sim.start(writer, "w", role=ROLES, model=model, rounds=120, pause_s=1.0, **SERVICES)
        sim.run(seconds=sim.rng.uniform(20, 120))
        daemon = sim.start(lsm.compactor, "daemon", role="compactor")
        sim.run(seconds=600)
        assert one.error is None, one.error
        assert daemon.error is None, daemon.error
        model.check(final_rows(sim, compactor=False, gc=False))


@pytest.mark.slow
@simulated
def test_no_write_waits_long_after_a_kill(seed: int) -> None:
    """A program that is killed again and again, also amid compactions, and started at once, compacts each time."""
    with Simulation(seed) as sim:
        sim.watch(DatabaseInvariants("db"))
        model = RowModel()
        tight = {"max_unflushed_bytes": 2000, "stall_timeout": 6}
        for number in range(6):
            one = sim.start(writer, f"w{number}", role=ROLES, model=model, rounds=600, pause_s=0.1, **SERVICES | tight)
            sim.run(seconds=sim.rng.uniform(8, 12))
            assert one.error is None, one.error
            one.kill()
        model.check(final_rows(sim, compactor=False, gc=False))


def test_the_defaults_are_both() -> None:
    defaults = EmbeddedDefaults()
    assert (defaults.compactor, defaults.gc) == (True, True)
    with pytest.raises(WrongType, match="compactor='no' is of type str: give a value of type bool"):
        defaults.change(gc=False, compactor="no")  # type: ignore[arg-type]
    assert (defaults.compactor, defaults.gc) == (True, True)
