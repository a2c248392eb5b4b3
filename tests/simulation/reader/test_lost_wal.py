"""Readers tell a lost WAL file from one that a collector deleted (docs/reference/protocol.md 5.2)."""

from functools import partial

import anyio
import pytest

from shale.errors import CheckpointMissing, ManifestMissing, SstMissing, UnavailableError, WalTruncated
from shale.format.names import wal_key
from shale.testing.database_invariants import DatabaseInvariants
from shale.testing.simulation import SimProcess, Simulation
from shale.testing.swarm import SimOptions
from shale.types import WalId
from tests.simulation.background_actors import eager_collector
from tests.simulation.conftest import simulated, simulated_slowly
from tests.simulation.reader.reader_processes import (
    ExpectedState,
    last_reader,
    manifests_of,
    open_reader,
    until_created,
    writer,
)


@pytest.mark.slow
@pytest.mark.fault("F3.4")
@simulated_slowly
@pytest.mark.parametrize("follow_latest", [False, True], ids=["managed", "follow_latest"])
def test_a_reader_that_opens_beside_an_eager_collector_never_reports_a_loss(seed: int, follow_latest: bool) -> None:
    """The collector deletes WAL files between any two requests of an opening, which may also sleep for a minute."""
    expected_state = ExpectedState()
    with Simulation(seed, options=SimOptions(latency_s=1.0)) as sim:
        sim.watch(DatabaseInvariants("db"))
        sim.start(writer, expected_state=expected_state, pause_s=1.0, rounds=100)
        sim.start(eager_collector, role="gc", rounds=200, pause_s=1.0)
        openers = [
            sim.start(opener, f"{number}", role="reader", expected_state=expected_state, follow_latest=follow_latest)
            for number in range(3)
        ]
        for each in openers:
            for _ in range(4):
                sim.at(sim.rng.uniform(5, 180), partial(each.freeze, sim.rng.uniform(1, 80)))
        sim.run(hours=1)
        for each in openers:
            assert each.error is None, each.error
            assert each.result > 5, "hardly any reader could open"


async def opener(process: SimProcess, expected_state: ExpectedState, *, follow_latest: bool) -> int:
    """Open, scan and close repeatedly; return how often that succeeded.

    Without protection an SST may be gone, and after a sleep also a checkpoint and its version; a WAL file never is.
    """
    await until_created(process)
    opened = seen = 0
    for _ in range(25):
        try:
            async with open_reader(process, follow_latest=follow_latest) as db:
                seen = expected_state.check([row async for row in db.scan()], at_least=seen)
                opened += 1
        except (SstMissing, UnavailableError, ManifestMissing, CheckpointMissing):
            pass
        await anyio.sleep(process.rng.uniform(0, 5))
    return opened


@pytest.mark.fault("F3.4")
@simulated
@pytest.mark.parametrize("follow_latest", [False, True], ids=["managed", "follow_latest"])
def test_a_lost_wal_file_is_an_error_of_every_new_reader(seed: int, follow_latest: bool) -> None:
    expected_state = ExpectedState()
    with Simulation(seed, options=SimOptions.calm()) as sim:
        sim.start(writer, expected_state=expected_state, rounds=30)
        sim.run(hours=1)
        sim.heal()
        losing = sim.start(lose_a_file, role="operator")
        sim.run(seconds=60)
        if losing.result is None:
            return  # the last flush left the WAL empty
        failed = sim.start(last_reader, "failed", role="reader", follow_latest=follow_latest)
        tolerant = sim.start(last_reader, "tolerant", role="reader", follow_latest=follow_latest, allow_wal_gap=True)
        sim.run(hours=1)
        assert isinstance(failed.error, WalTruncated)
        assert failed.error.id == losing.result
        assert tolerant.error is None, tolerant.error


async def lose_a_file(process: SimProcess) -> int | None:
    """Delete one of the WAL files that the newest manifest knows and needs; return its id."""
    manifest = (await manifests_of(process).read_latest()).value
    needed = range(manifest.replay_after_wal_id + 1, manifest.next_wal_sst_id)
    if not needed:
        return None
    lost = process.rng.choice(needed)
    await process.store.delete(wal_key("db", WalId(lost)))
    return lost
