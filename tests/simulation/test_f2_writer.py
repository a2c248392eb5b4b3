"""Rows F2.1, F2.4, F2.13, F2.16 and swarms of everything: writers that die, freeze and fence each other."""

import pytest

from shale.errors import FencedError
from shale.format.bloom import FixedPrefix
from shale.testing.database_rules import DatabaseRules
from shale.testing.simulation import Simulation
from shale.testing.swarm import SimOptions
from tests.simulation.conftest import simulated
from tests.simulation.neighbours import start_some_neighbours
from tests.simulation.row_model import RowModel
from tests.simulation.writers import final_rows, writer

BY_KIND = FixedPrefix("kind", 4)


@simulated
@pytest.mark.parametrize("extractor", [None, BY_KIND], ids=["one tree", "segments"])
def test_swarm_of_writers(seed: int, extractor: FixedPrefix | None) -> None:
    """Whatever happens to requests and processes: what was acknowledged is there, what was refused is not.

    With segments a flush makes several SSTs, and none of them shows without the others.
    """
    with Simulation(seed, swarm=True) as sim:
        rules = DatabaseRules(sim, "db")
        sim.watch(rules)
        model = RowModel()
        sim.restart_killed(30.0)
        for number in range(sim.rng.randint(1, 3)):
            sim.at(
                sim.rng.uniform(0, 20),
                lambda name=f"w{number}": sim.start(
                    writer,
                    name,
                    role="writer",
                    model=model,
                    flush_interval=sim.rng.choice((0, "100ms", "5s")),
                    close=sim.rng.choice(("memtable", "wal", "none")),
                    segment_extractor=extractor,
                ),
            )
        start_some_neighbours(sim)
        sim.run(hours=4)
        model.check(final_rows(sim, segment_extractor=extractor))
        segments = {segment.prefix for segment in rules.manifests.latest.segments}
        assert segments <= (set() if extractor is None else {b"key-", b"pair"})
        assert extractor is None or rules.manifests.latest.tree.is_empty


@simulated
def test_f2_1_killed_at_each_request_of_the_opening(seed: int) -> None:
    with Simulation(seed) as sim:
        sim.watch(DatabaseRules(sim, "db"))
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
    """The crash points of docs/protocol.md 4.14: wherever it dies, the next writer goes on from there."""
    with Simulation(seed) as sim:
        sim.watch(DatabaseRules(sim, "db"))
        model = RowModel()
        victim = sim.start(writer, "victim", role="writer", model=model, rounds=25, l0_sst_size_bytes=400)
        if moment == "before":
            victim.kill_before("put", "", skip=seed % 60)
        else:
            victim.kill_after("put", "", skip=seed % 60)
        sim.run(hours=1)
        model.check(final_rows(sim))


@simulated
def test_f2_4_three_writers_open_at_once(seed: int) -> None:
    """Exactly one survives, and epochs increase strictly."""
    with Simulation(seed, options=SimOptions(latency_s=0.5)) as sim:
        rules = DatabaseRules(sim, "db")
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


@simulated
@pytest.mark.parametrize("close", ["memtable", "wal", "none"])
def test_f2_16_killed_while_closing(seed: int, close: str) -> None:
    with Simulation(seed) as sim:
        sim.watch(DatabaseRules(sim, "db"))
        model = RowModel()
        process = sim.start(writer, "w", role="writer", model=model, rounds=12, close=close)
        process.kill_before("put", "", skip=14 + seed % 12)
        sim.run(hours=1)
        model.check(final_rows(sim))
