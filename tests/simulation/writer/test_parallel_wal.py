"""Databases whose WAL files are written in parallel: gaps, fences, frozen writers and readers.

Source: docs/reference/protocol.md 4.13, 16.2 (F2.21).
"""

from functools import partial
from typing import Any

import pytest

from shale.errors import FencedError
from shale.testing.database_invariants import DatabaseInvariants
from shale.testing.simulation import Simulation
from shale.testing.swarm import SimOptions
from tests.simulation.background_actors import eager_collector, start_some_background_actors
from tests.simulation.conftest import simulated, simulated_slowly
from tests.simulation.row_model import RowModel
from tests.simulation.writer.parallel import ACKS, SLOW_PUTS, clients, gap_after_crash, reader_at_a_gap, succession
from tests.simulation.writer.writers import final_rows


@pytest.mark.fault("F2.21")
@pytest.mark.parametrize("ack", ACKS)
@simulated
def test_a_writer_killed_with_files_in_flight_loses_no_acknowledged_row(seed: int, ack: str) -> None:
    gap_after_crash(seed, ack)


@pytest.mark.fault("F2.21")
@pytest.mark.parametrize("ack", ACKS)
def test_killed_writers_leave_gaps(ack: str) -> None:
    """The test above meets gaps: otherwise it would prove nothing."""
    assert any(gap_after_crash(seed, ack) for seed in range(20))


@pytest.mark.fault("F2.21")
@pytest.mark.parametrize("ack", ACKS)
@simulated_slowly
def test_swarm_of_parallel_writers(seed: int, ack: str) -> None:
    """Under faults of requests and processes, acknowledged rows exist and refused rows do not."""
    with Simulation(seed, swarm=True) as sim:
        sim.watch(DatabaseInvariants("db"))
        model = RowModel()
        sim.restart_killed(30.0)
        shared: dict[str, Any] = {"model": model, "parallel": sim.rng.choice((2, 3, 5)), "ack": ack}
        for name in ("w0", "w1", "w2")[: sim.rng.randint(1, 3)]:
            own = {"flush_interval": sim.rng.choice((0, "100ms")), "close": sim.rng.choice(("memtable", "wal", "none"))}
            sim.at(sim.rng.uniform(0, 20), partial(sim.start, clients, name, role="writer", **shared, **own))
        start_some_background_actors(sim)
        sim.run(hours=4)
        model.check(final_rows(sim))


@pytest.mark.fault("F2.21")
@pytest.mark.parametrize("moment", ["before", "after"])
@simulated_slowly
def test_a_kill_during_the_run_of_fences_loses_no_row(seed: int, moment: str) -> None:
    with Simulation(seed, options=SLOW_PUTS) as sim:
        sim.watch(DatabaseInvariants("db"))
        model = RowModel()
        old = sim.start(clients, "old", role="writer", model=model, rounds=100)
        sim.run(seconds=5 + seed % 7)
        victim = sim.start(clients, "victim", role="writer", model=model, rounds=1)
        kill = victim.kill_before if moment == "before" else victim.kill_after
        kill("put", "/wal/", skip=seed % 4)
        sim.run(seconds=30)
        sim.start(clients, "next", role="writer", model=model, rounds=5)
        sim.run(hours=1)
        assert isinstance(old.error, FencedError)
        model.check(final_rows(sim))


@pytest.mark.fault("F2.21")
@pytest.mark.parametrize("ack", ACKS)
@pytest.mark.parametrize("fences", [False, True], ids=["fences kept", "fences collected"])
@simulated_slowly
def test_an_old_writer_that_wakes_with_files_in_flight_is_fenced(seed: int, ack: str, fences: bool) -> None:
    with Simulation(seed, options=SLOW_PUTS) as sim:
        sim.watch(DatabaseInvariants("db"))
        model = RowModel()
        old = sim.start(clients, "old", role="writer", model=model, ack=ack, rounds=10_000)
        old.freeze_before("put", "/wal/", 900, skip=4 + seed % 20)
        sim.run(seconds=60)
        sim.start(clients, "new", role="writer", model=model, ack=ack, rounds=40)
        sim.start(eager_collector, "gc", role="gc", rounds=400, fences=fences)
        sim.run(hours=1)
        assert isinstance(old.error, FencedError)
        model.check(final_rows(sim))


@pytest.mark.fault("F2.21")
@simulated
def test_one_of_three_concurrent_opens_of_a_parallel_wal_survives(seed: int) -> None:
    with Simulation(seed, options=SimOptions(latency_s=0.5)) as sim:
        sim.watch(DatabaseInvariants("db"))
        model = RowModel()
        writers = [sim.start(clients, name, role="writer", model=model, rounds=8) for name in ("a", "b", "c")]
        sim.run(hours=1)
        fenced = [process for process in writers if isinstance(process.error, FencedError)]
        assert len(fenced) == 2, [process.error for process in writers]
        model.check(final_rows(sim))


@pytest.mark.fault("F2.21")
@pytest.mark.parametrize("ack", ACKS)
@simulated
def test_a_new_writer_fences_one_with_files_in_flight(seed: int, ack: str) -> None:
    succession(seed, ack)


@pytest.mark.fault("F2.21")
@pytest.mark.parametrize("ack", ACKS)
@simulated
def test_a_reader_stops_at_a_gap_and_goes_on_once_it_is_filled(seed: int, ack: str) -> None:
    reader_at_a_gap(seed, ack)
