"""Writers that die, freeze and fence each other.

Source: docs/reference/protocol.md 16.2.
"""

from collections.abc import Sequence

import pytest

from shale.errors import FencedError
from shale.format.sst.filter_policy import FixedPrefix
from shale.testing.database_invariants import DatabaseInvariants
from shale.testing.simulation import Simulation
from shale.testing.swarm import SimOptions
from tests.simulation.background_actors import start_some_background_actors
from tests.simulation.conftest import simulated
from tests.simulation.row_model import RowModel
from tests.simulation.writer.writers import final_rows, writer

BY_KIND = FixedPrefix("kind", 4)


@simulated
@pytest.mark.parametrize(
    ("extractor", "versions"),
    [(None, (2,)), (BY_KIND, (2,)), (None, (1, 2))],
    ids=["one tree", "segments", "manifests of both versions"],
)
def test_swarm_of_writers(seed: int, extractor: FixedPrefix | None, versions: Sequence[int]) -> None:
    """Under faults of requests and processes, acknowledged rows exist and refused rows do not.

    With segments a flush makes several SSTs, and none of them shows without the others.  ``versions``: those of the
    manifests that the first writer writes, the second, and so on.
    """
    with Simulation(seed, swarm=True) as sim:
        rules = DatabaseInvariants("db")
        sim.watch(rules)
        model = RowModel()
        sim.restart_killed(30.0)
        for number in range(sim.rng.randint(1, 3)):
            version = versions[number % len(versions)]
            sim.at(
                sim.rng.uniform(0, 20),
                lambda name=f"w{number}", version=version: sim.start(
                    writer,
                    name,
                    role="writer",
                    model=model,
                    flush_interval=sim.rng.choice((0, "100ms", "5s")),
                    close=sim.rng.choice(("memtable", "wal", "none")),
                    segment_extractor=extractor,
                    manifest_write_version=version,
                ),
            )
        start_some_background_actors(sim)
        sim.run(hours=4)
        model.check(final_rows(sim, segment_extractor=extractor))
        segments = {segment.prefix for segment in rules.manifests.latest.segments}
        assert segments <= (set() if extractor is None else {b"key-", b"pair"})
        assert extractor is None or rules.manifests.latest.tree.is_empty


@pytest.mark.fault("F2.1")
@simulated
def test_a_kill_at_each_request_of_an_open_loses_no_row(seed: int) -> None:
    with Simulation(seed) as sim:
        sim.watch(DatabaseInvariants("db"))
        model = RowModel()
        sim.start(writer, "first", role="writer", model=model, rounds=10, close="wal")
        sim.run(hours=1)
        victim = sim.start(writer, "victim", role="writer", model=model, rounds=0)
        victim.kill_before("*", "", skip=seed)
        sim.run(hours=1)
        model.check(final_rows(sim))


@simulated
@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_at_each_request_of_a_life(seed: int, moment: str) -> None:
    """The crash points of docs/reference/protocol.md 4.14: the next writer continues after each of them."""
    with Simulation(seed) as sim:
        sim.watch(DatabaseInvariants("db"))
        model = RowModel()
        victim = sim.start(writer, "victim", role="writer", model=model, rounds=25, l0_sst_size_bytes=400)
        if moment == "before":
            victim.kill_before("put", "", skip=seed % 60)
        else:
            victim.kill_after("put", "", skip=seed % 60)
        sim.run(hours=1)
        model.check(final_rows(sim))


@pytest.mark.fault("F2.4")
@simulated
def test_one_of_three_concurrent_opens_survives(seed: int) -> None:
    """Exactly one survives, and epochs increase strictly."""
    with Simulation(seed, options=SimOptions(latency_s=0.5)) as sim:
        rules = DatabaseInvariants("db")
        sim.watch(rules)
        model = RowModel()
        writers = [
            sim.start(writer, name, role="writer", model=model, rounds=15, pause_s=2.0) for name in ("a", "b", "c")
        ]
        sim.run(hours=1)
        fenced = [process for process in writers if isinstance(process.error, FencedError)]
        assert len(fenced) == 2, [process.error for process in writers]
        claims = [manifest.writer_epoch for _, manifest in sorted(rules.manifests.versions.items())]
        assert sorted(set(claims)) == list(range(claims[-1] + 1))
        assert claims[-1] == 3
        model.check(final_rows(sim))


@pytest.mark.fault("F2.16")
@simulated
@pytest.mark.parametrize("close", ["memtable", "wal", "none"])
def test_a_kill_during_close_loses_no_durable_row(seed: int, close: str) -> None:
    with Simulation(seed) as sim:
        sim.watch(DatabaseInvariants("db"))
        model = RowModel()
        process = sim.start(writer, "w", role="writer", model=model, rounds=12, close=close)
        process.kill_before("put", "", skip=14 + seed % 12)
        sim.run(hours=1)
        model.check(final_rows(sim))
