"""Sequenced files under faults.

Source: docs/reference/protocol.md 16.1.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from shale.errors import CorruptionError, ObjectVersionBehindBoundary, ObjectVersionExists
from shale.testing.faults import Fault
from shale.testing.sequenced_invariants import SequencedInvariants
from shale.testing.simulation import SimProcess, Simulation
from shale.testing.swarm import SimOptions
from tests.simulation.conftest import seeds, simulated
from tests.simulation.first_version import load_or_create
from tests.simulation.protocol.effects import (
    TOY,
    Acknowledged,
    Effects,
    collector,
    contender,
    final_value,
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
    stored = await load_or_create(store, Effects())
    while stored.id < count:
        name = f"prepared.{stored.id}"
        await stored.apply(lambda current, name=name: current.value.with_effect(name))


def prepare(sim: Simulation, acks: Acknowledged, count: int) -> None:
    process = sim.start(prepared, count=count)
    sim.run(hours=1)
    assert process.error is None
    acks.begun += [f"prepared.{number}" for number in range(1, count)]
    acks.effects += acks.begun


@contextmanager
def prepared_simulation(
    seed: int, versions: int
) -> Iterator[tuple[Simulation, SequencedInvariants[Effects], Acknowledged]]:
    """Simulate a namespace under its rules; yield it, its rules and its acknowledged effects after some versions."""
    acks = Acknowledged()
    with Simulation(seed) as sim:
        rules = toy_rules()
        sim.watch(rules)
        prepare(sim, acks, versions)
        yield sim, rules, acks


@pytest.mark.fault("F1.1")
@simulated
def test_one_of_two_concurrent_creators_wins(seed: int) -> None:
    """Two processes create the same id concurrently: one wins, the other builds on its version."""
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


@pytest.mark.fault("F1.2")
@simulated
def test_a_winning_put_is_recognized_when_its_response_is_lost(seed: int) -> None:
    """With metadata the put id identifies the write; without it, an idempotent change finds itself applied."""
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


@pytest.mark.fault("F1.3")
@simulated
def test_a_put_of_another_process_between_two_attempts_is_a_conflict(seed: int) -> None:
    """The first attempt fails, another writer creates the id, and the second attempt must report a conflict."""
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


@pytest.mark.fault("F1.4")
@simulated
def test_a_stalled_process_does_not_commit_a_deleted_id(seed: int) -> None:
    """A process stalls between computing its id and the put; five versions later the collector has deleted that id.

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
        # A record below the low-water mark is refused; a conditional write knows nothing of deleted ids.
        assert bool(rules.zombies) is not sim.two_phase, "the sleeper was expected to create a deleted id again"
        acks.check(final_value(sim))


@pytest.mark.fault("F1.5")
@simulated
def test_a_process_stalled_between_put_and_check_applies_its_change_once(seed: int) -> None:
    """The file was the latest and others built on it; the stalled process must not apply its change again."""
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


@pytest.mark.fault("F1.6")
@simulated
def test_a_version_of_a_process_killed_between_put_and_check_is_built_upon(seed: int) -> None:
    """The response was lost, but the file exists: all writers build on it."""
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


@pytest.mark.fault("F1.7")
@pytest.mark.native_only("an insert below the low-water mark is refused; F7.5 has the copies that are late")
@simulated
def test_an_id_created_again_below_the_boundary_is_never_the_latest(seed: int) -> None:
    """A deleted id exists again below the boundary: readers ignore it, and it is collected."""
    chance = random.Random(seed)
    with prepared_simulation(seed, 3) as (sim, rules, acks):
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
    """Record what was read and the newest version at the start of the read."""
    store = toy_store(process)
    while True:
        if cold:
            store = toy_store(process)
        known = rules.latest_id
        seen.append(((await store.read_latest()).id, known))
        await anyio.sleep(process.rng.uniform(1, 20))


@pytest.mark.fault("F1.8")
@simulated
def test_without_boundaries_only_the_age_of_the_proof_stops_a_stalled_reader(seed: int) -> None:
    """Only the age of its proof shows the reader that "there is no next version" may be outdated."""
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


@pytest.mark.fault("F1.9")
@simulated
def test_a_reader_lists_again_when_the_listed_latest_is_deleted(seed: int) -> None:
    """The collector deletes it between the two requests: a newer one exists, so the reader lists again."""
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


@pytest.mark.fault("F1.17")
@simulated
def test_names_that_are_not_canonical_are_ignored(seed: int) -> None:
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


@pytest.mark.fault("F1.18")
@pytest.mark.parametrize("seed", seeds(2))
def test_ten_contenders_commit_each_effect_once(seed: int) -> None:
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


@pytest.mark.fault("F1.18")
@simulated
def test_contenders_commit_each_effect_once_under_all_faults(seed: int) -> None:
    """Under all faults of processes and store, no acknowledged effect is lost and none is applied twice."""
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


@pytest.mark.fault("F1.20")
@simulated
def test_a_truncated_latest_is_reported_and_kept(seed: int) -> None:
    """No writer overwrites a file that it cannot read."""
    acks = Acknowledged()
    chance = random.Random(seed)
    with Simulation(seed) as sim:
        prepare(sim, acks, 5)
        key = TOY.key(5)
        whole = sim.objects()[key]
        sim.stored.write(key, whole[: chance.randrange(len(whole))])
        before = sim.objects()
        a = sim.start(contender, "a", acks=acks, rounds=1)
        sim.run(hours=1)
        assert isinstance(a.error, CorruptionError)
        assert a.error.path == key
        assert sim.objects() == before


@simulated
def test_a_rejected_write_is_a_conflict_of_its_own_kind(seed: int) -> None:
    """The typed error names the id and the boundary; callers that only retry see a conflict."""
    acks = Acknowledged()
    with Simulation(seed) as sim:
        prepare(sim, acks, 5)

        async def sleeper(process: SimProcess) -> None:
            store = toy_store(process, probe_max_staleness_s=NEVER_STALE)
            stored = await store.load()
            await anyio.sleep(2000)
            with pytest.raises(ObjectVersionExists) as caught:
                await store.commit(stored.id, stored.value)
            if sim.two_phase:
                return  # the low-water mark plays the boundary's role within the create itself (12.3)
            assert isinstance(caught.value, ObjectVersionBehindBoundary)
            assert (caught.value.id, caught.value.boundary) == (6, 9)

        sim.start(contender, "b", acks=acks, rounds=5, pause_s=10.0)
        sleeping = sim.start(sleeper)
        sim.start(collector, "gc")
        sim.run(hours=1, until=None)
        assert sleeping.has_ended
