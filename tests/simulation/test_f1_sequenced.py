"""Sequenced files under faults: F1.1 to F1.9, F1.17, F1.18 and F1.20 of docs/protocol.md 16.1."""

import random
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from shale.errors import CorruptionError, ObjectVersionBehindBoundary, ObjectVersionExists
from shale.testing.faults import Fault
from shale.testing.simulation import SimProcess, Simulation
from shale.testing.swarm import SimOptions
from tests.simulation.conftest import seeds, simulated
from tests.simulation.toy import (
    TOY,
    Acknowledged,
    Effects,
    collector,
    contender,
    final_value,
    load_or_create,
    reading,
    toy_rules,
    toy_store,
)

if TYPE_CHECKING:
    from shale.protocol.versioned import Versioned

PUT = ("put", "/manifest/")
NEVER_STALE = 1e9


async def prepared(process: SimProcess, count: int) -> None:
    """Write versions 1 to ``count``."""
    store = toy_store(process)
    stored = await load_or_create(store)
    while stored.id < count:
        name = f"prepared.{stored.id}"
        await stored.apply(lambda current, name=name: current.value.with_effect(name))


def prepare(sim: Simulation, acks: Acknowledged, count: int) -> None:
    process = sim.start(prepared, count=count)
    sim.run(hours=1)
    assert process.error is None
    acks.begun += [f"prepared.{number}" for number in range(1, count)]
    acks.effects += acks.begun


@simulated
def test_f1_1_two_creators(seed: int) -> None:
    """Two processes create the same id at once: one wins, the loser builds on top of it."""
    acks = Acknowledged()
    with Simulation(seed, options=SimOptions(latency_s=random.Random(seed).choice((0.0, 0.01, 1.0)))) as sim:
        sim.watch(toy_rules())
        for name in ("a", "b"):
            sim.start(contender, name, acks=acks, rounds=5, pause_s=0.0)
        sim.run(hours=1)
        final = final_value(sim)
        acks.check(final)
        assert len(final.done) == 10
        assert len(sim.history.of("/manifest/")) == 11


@simulated
def test_f1_2_the_answer_to_the_winning_put_is_lost(seed: int) -> None:
    """With metadata the put id tells; without it, an idempotent change finds itself done."""
    chance = random.Random(seed)
    has_metadata = chance.random() < 0.5
    acks = Acknowledged()
    with Simulation(seed, options=SimOptions(attributes=has_metadata)) as sim:
        sim.watch(toy_rules())
        a = sim.start(contender, "a", acks=acks, rounds=6)
        a.fail(*PUT, Fault.AFTER, skip=chance.randrange(7))
        a.fail(*PUT, Fault.LATE, skip=chance.randrange(7))
        if chance.random() < 0.5:
            sim.start(contender, "b", acks=acks, rounds=6)
        sim.run(hours=1)
        assert a.error is None
        final = final_value(sim)
        acks.check(final)
        assert len(acks.effects) == len(sim.processes[:-1]) * 6
        if has_metadata:
            assert len(sim.history.of("/manifest/")) == 1 + len(final.done)


@simulated
def test_f1_3_another_put_lands_between_two_attempts(seed: int) -> None:
    """The first attempt fails, somebody else takes the id, the second attempt must call that a conflict."""
    acks = Acknowledged()
    with Simulation(seed, options=SimOptions(latency_s=0.001)) as sim:
        sim.watch(toy_rules())
        prepare(sim, acks, 3)
        a = sim.start(contender, "a", acks=acks, rounds=1, pause_s=0.0)
        a.fail(*PUT, Fault.BEFORE)
        sim.at(0.02, lambda: sim.start(contender, "b", acks=acks, rounds=1, pause_s=0.0))
        sim.run(hours=1)
        final = final_value(sim)
        acks.check(final)
        assert final.done[-2:] == ("b.0", "a.0")


@simulated
def test_f1_4_a_sleeper_meets_a_deleted_id(seed: int) -> None:
    """A sleeps between computing its id and the put; five versions later the collector has deleted that id.

    The boundary alone must catch it (no limit on the age of proofs), and so must both together.
    """
    chance = random.Random(seed)
    stale_s = chance.choice((60.0, NEVER_STALE))
    acks = Acknowledged()
    with Simulation(seed, options=SimOptions(latency_s=0.05)) as sim:
        rules = toy_rules()
        sim.watch(rules)
        prepare(sim, acks, 3)
        a = sim.start(contender, "a", acks=acks, rounds=3, probe_max_staleness_s=stale_s)
        a.freeze_before(*PUT, chance.uniform(1000, 5000), skip=chance.randrange(3))
        sim.start(contender, "b", acks=acks, rounds=5 + chance.randrange(5), pause_s=60.0)
        gc = sim.start(collector, "gc")
        sim.run(hours=2, until=lambda: a.has_ended)
        gc.kill()
        assert a.error is None
        assert rules.zombies, "the sleeper was expected to create a deleted id again"
        acks.check(final_value(sim))


@simulated
def test_f1_5_a_sleeper_between_put_and_check(seed: int) -> None:
    """The file was the latest for a while and others built on it; the sleeper must not do its work twice."""
    chance = random.Random(seed)
    acks = Acknowledged()
    with Simulation(seed, options=SimOptions(latency_s=0.05)) as sim:
        sim.watch(toy_rules())
        prepare(sim, acks, 3)
        stale_s = chance.choice((60.0, NEVER_STALE))
        a = sim.start(contender, "a", acks=acks, rounds=3, probe_max_staleness_s=stale_s)
        a.freeze_after(*PUT, chance.uniform(1000, 5000), skip=chance.randrange(3))
        sim.start(contender, "b", acks=acks, rounds=8, pause_s=60.0)
        gc = sim.start(collector, "gc")
        sim.run(hours=2, until=lambda: a.has_ended)
        gc.kill()
        assert a.error is None
        final = final_value(sim)
        acks.check(final)
        assert sum(name.startswith("a.") for name in final.done) == 3


@simulated
def test_f1_6_killed_between_put_and_check(seed: int) -> None:
    """Nobody was told, but the file is there: everybody goes on from it."""
    chance = random.Random(seed)
    acks = Acknowledged()
    with Simulation(seed) as sim:
        sim.watch(toy_rules())
        prepare(sim, acks, 3)
        a = sim.start(contender, "a", acks=acks, rounds=3, pause_s=0.1)
        a.kill_after(*PUT, skip=chance.randrange(3))
        sim.start(contender, "b", acks=acks, rounds=5)
        sim.run(hours=1)
        final = final_value(sim)
        acks.check(final)
        unknown = set(acks.begun) - set(acks.effects)
        assert len(unknown) == 1
        assert unknown <= set(final.done)


@simulated
def test_f1_7_a_zombie_is_never_the_latest(seed: int) -> None:
    """A deleted id exists again, below the boundary: cold and warm readers pass over it, and it is collected."""
    chance = random.Random(seed)
    acks = Acknowledged()
    with Simulation(seed) as sim:
        rules = toy_rules()
        sim.watch(rules)
        prepare(sim, acks, 3)
        a = sim.start(contender, "a", acks=acks, rounds=1, probe_max_staleness_s=NEVER_STALE)
        a.freeze_before(*PUT, 1500)
        a.kill_after(*PUT)
        b = sim.start(contender, "b", acks=acks, rounds=8, pause_s=100.0)
        sim.start(collector, "gc")
        seen: list[tuple[int, int]] = []
        sim.start(_compared_reads, "warm", rules=rules, seen=seen, cold=False)
        sim.start(_compared_reads, "cold", rules=rules, seen=seen, cold=True)
        sim.run(minutes=chance.uniform(60, 90))
        assert b.has_ended
        assert rules.zombies
        assert seen
        assert all(read >= known for read, known in seen)
        assert not rules.zombies & {int(key[-29:-9]) for key in sim.objects("toy/manifest/")}


async def _compared_reads(process: SimProcess, rules: Any, seen: list[tuple[int, int]], *, cold: bool) -> None:
    """Note what was read next to the newest version there was when the read began."""
    store = toy_store(process)
    while True:
        if cold:
            store = toy_store(process)
        known = rules.latest_id
        seen.append(((await store.read_latest()).id, known))
        await anyio.sleep(process.rng.uniform(1, 20))


@simulated
def test_f1_8_a_reader_sleeps_through_a_collection_without_boundaries(seed: int) -> None:
    """Nothing but the age of its proof tells the reader that "there is no next version" may be wrong."""
    chance = random.Random(seed)
    off: dict[str, Any] = {"boundary_files_enabled": False}
    acks = Acknowledged()
    with Simulation(seed) as sim:
        rules = toy_rules(boundaries=False)
        sim.watch(rules)
        prepare(sim, acks, 3)
        seen: list[tuple[int, int]] = []
        reader = sim.start(_compared_reads, "reader", rules=rules, seen=seen, cold=False)
        reader.freeze_before("*", "", chance.uniform(400, 5000), skip=chance.randrange(4, 60))
        writers = [sim.start(contender, name, acks=acks, rounds=8, pause_s=100.0, **off) for name in "ab"]
        writers[0].freeze_before(*PUT, chance.uniform(400, 5000), skip=chance.randrange(4))
        sim.start(collector, "gc", **off)
        sim.run(hours=3)
        assert all(writer.has_ended for writer in writers)
        assert all(read >= known for read, known in seen)
        for process in sim.running:
            process.kill()
        acks.check(final_value(sim, **off))


@simulated
def test_f1_9_the_listed_latest_is_deleted_before_it_is_read(seed: int) -> None:
    """The collector takes it between the two requests: there is a newer one, so list again."""
    chance = random.Random(seed)
    acks = Acknowledged()
    with Simulation(seed) as sim:
        sim.watch(toy_rules())
        prepare(sim, acks, 3)
        seen: list[Versioned[Effects]] = []
        reader = sim.start(reading, "reader", seen=seen)
        reader.freeze_after("list", "/manifest/", chance.uniform(1000, 2000))
        sim.start(contender, "b", acks=acks, rounds=5, pause_s=60.0)
        sim.start(collector, "gc")
        sim.run(hours=1)
        assert seen[0].id == 8


@simulated
def test_f1_17_foreign_names_are_ignored(seed: int) -> None:
    """Names that are not in canonical form are neither read, nor counted, nor collected."""
    names = ("foo.txt", "abc.manifest", "99.manifest", f"{99:020}.manifest.tmp", f"{99:020}.x.manifest", f"{7:020}#1")
    acks = Acknowledged()
    with Simulation(seed) as sim:
        sim.watch(toy_rules())

        async def littering(process: SimProcess) -> None:
            for name in names:
                await anyio.sleep(process.rng.uniform(0, 100))
                await process.store.put(f"{TOY.directory}{name}", b"litter")

        sim.start(littering)
        for name in ("a", "b"):
            sim.start(contender, name, acks=acks, rounds=5, pause_s=100.0)
        gc = sim.start(collector, "gc")
        sim.run(hours=2)
        gc.kill()
        acks.check(final_value(sim))
        left = {key.removeprefix(TOY.directory) for key in sim.objects(TOY.directory)}
        assert set(names) < left
        assert len(left) == len(names) + 1


@pytest.mark.parametrize("seed", seeds(2))
def test_f1_18_ten_contenders(seed: int) -> None:
    """Ten processes, a hundred commits each: exactly a thousand effects under contiguous ids."""
    acks = Acknowledged()
    with Simulation(seed, options=SimOptions(latency_s=0.01)) as sim:
        sim.watch(toy_rules())
        for number in range(10):
            sim.start(contender, f"p{number}", acks=acks, rounds=100, pause_s=0.0)
        sim.run(hours=10)
        final = final_value(sim)
        acks.check(final)
        assert len(final.done) == 1000
        assert len(sim.history.of("/manifest/")) == 1001


@simulated
def test_f1_18_contenders_under_all_faults(seed: int) -> None:
    """Whatever happens to the processes and the store, no acknowledged effect is lost and none happens twice."""
    acks = Acknowledged()
    with Simulation(seed, swarm=True) as sim:
        sim.watch(toy_rules())
        sim.restart_killed(60)
        for number in range(4):
            sim.start(contender, f"p{number}", acks=acks, rounds=15, pause_s=sim.rng.choice((0.0, 30.0, 300.0)))
        gc = sim.start(collector, "gc")
        sim.run(hours=3)
        gc.kill()
        sim.run(hours=20)
        acks.check(final_value(sim))


@simulated
def test_f1_20_a_truncated_latest_is_reported_and_kept(seed: int) -> None:
    """Nobody overwrites what he cannot read."""
    acks = Acknowledged()
    chance = random.Random(seed)
    with Simulation(seed) as sim:
        prepare(sim, acks, 5)
        key = TOY.key(5)
        whole = sim.objects()[key]
        sim.memory._store(key, whole[: chance.randrange(len(whole))], None)
        before = sim.objects()
        a = sim.start(contender, "a", acks=acks, rounds=1)
        sim.run(hours=1)
        assert isinstance(a.error, CorruptionError)
        assert a.error.path == key
        assert sim.objects() == before


@simulated
def test_a_rejected_write_is_a_conflict_of_its_own_kind(seed: int) -> None:
    """The typed error names the id and the boundary, and is a conflict for everybody who only retries."""
    acks = Acknowledged()
    with Simulation(seed) as sim:
        prepare(sim, acks, 5)

        async def sleeper(process: SimProcess) -> None:
            store = toy_store(process, probe_max_staleness_s=NEVER_STALE)
            stored = await store.load()
            await anyio.sleep(2000)
            with pytest.raises(ObjectVersionExists) as caught:
                await store.commit(stored.id, stored.value)
            assert isinstance(caught.value, ObjectVersionBehindBoundary)
            assert (caught.value.id, caught.value.boundary) == (6, 9)

        sim.start(contender, "b", acks=acks, rounds=5, pause_s=10.0)
        sleeping = sim.start(sleeper)
        sim.start(collector, "gc")
        sim.run(hours=1, until=None)
        assert sleeping.has_ended
