"""Boundaries and epochs under faults: F1.10 to F1.16 and F1.19 of docs/protocol.md 16.1."""

import random
from typing import TYPE_CHECKING

import anyio
import pytest

from shale.errors import FencedError, InvalidObjectState, ObjectUpdateTimeout, ProtocolPanic
from shale.protocol.boundary import Boundary
from shale.protocol.options import MissingBoundary, ProtocolOptions
from shale.protocol.transactional import Fenceable
from shale.testing.faults import Fault
from shale.testing.sim_store import Moment
from shale.testing.simulation import SimProcess, Simulation
from shale.testing.swarm import SimOptions
from tests.simulation.conftest import simulated
from tests.simulation.test_f1_sequenced import prepare
from tests.simulation.toy import (
    OWNER,
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

BOUNDARY = TOY.boundary_key
REORDERING = SimOptions(latency_s=0.5, slow=0.5, slow_s=20.0)


def boundary_of(process: SimProcess, missing: MissingBoundary = MissingBoundary.PANIC) -> Boundary:
    options = ProtocolOptions(missing_boundary=missing)
    return Boundary(process.store, TOY, process.env, process.metrics, options)


async def many_reads(process: SimProcess, learned: list[int], *, reads: int) -> None:
    """Ask for the boundary many times at once and note what the process believes after each answer."""
    boundary = boundary_of(process)

    async def one() -> None:
        await anyio.sleep(process.rng.uniform(0, 100))
        await boundary.read()
        if boundary._cached is not None:
            learned.append(boundary._cached.value)

    async with anyio.create_task_group() as tasks:
        for _ in range(reads):
            tasks.start_soon(one)


async def advancing(process: SimProcess, *, targets: list[int]) -> None:
    boundary = boundary_of(process)
    for target in targets:
        await anyio.sleep(process.rng.uniform(0, 20))
        await boundary.advance(target)


@simulated
def test_f1_10_answers_of_the_boundary_overtake_each_other(seed: int) -> None:
    """What a process believes never goes back, and a late answer is no error."""
    learned: list[int] = []
    with Simulation(seed, options=REORDERING) as sim:
        reader = sim.start(many_reads, "reader", learned=learned, reads=60)
        sim.start(advancing, "gc", targets=[3, 4, 7, 11])
        sim.run(hours=1)
        assert reader.error is None
    assert learned == sorted(learned)
    assert learned


@simulated
def test_f1_11_not_found_from_before_the_first_observation(seed: int) -> None:
    """A read that was sent before the file existed may say so after the file was seen: that is value 0."""
    values: list[int] = []

    async def early_and_late(process: SimProcess) -> None:
        boundary = boundary_of(process)

        async def early() -> None:
            values.append(await boundary.read())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(early)
            await anyio.sleep(1)
            await boundary.advance(5)
            values.append(await boundary.read())

    # The first answer is held up long enough for the advance to finish in between.
    with Simulation(seed, options=SimOptions(latency_s=0.0)) as sim:
        process = sim.start(early_and_late)
        process.network.hook(Moment.AFTER, "get", BOUNDARY, lambda: _slow_once(process))
        sim.run(hours=1)
        assert process.error is None
    assert values == [5, 0]


def _slow_once(process: SimProcess) -> None:
    """Let the answer under way take ten seconds, and no other."""
    store = process.network
    usual = store._way_s

    def slow() -> float:
        store._way_s = usual  # type: ignore[method-assign]
        return 10.0

    store._way_s = slow  # type: ignore[method-assign]


@simulated
@pytest.mark.parametrize("missing", list(MissingBoundary))
def test_f1_12_the_boundary_disappears(seed: int, missing: MissingBoundary) -> None:
    """Seen and gone: the default stops the process before it reports anything; the option reads it as 0."""
    chance = random.Random(seed)
    acks = Acknowledged()
    with Simulation(seed, tolerates_panic=True) as sim:
        sim.watch(toy_rules(boundary_may_go=True, boundaries=False))
        prepare(sim, acks, 3)
        a = sim.start(contender, "a", acks=acks, rounds=200, pause_s=60.0, missing_boundary=missing)
        gc = sim.start(collector, "gc")
        sim.run(seconds=chance.uniform(1500, 2500))
        gc.kill()

        async def vandal(process: SimProcess) -> None:
            await process.store.delete(BOUNDARY)

        before = len(acks.effects)
        sim.start(vandal)
        sim.run(hours=5)
        if missing is MissingBoundary.ZERO:
            assert a.error is None
            assert len(acks.effects) == 202
        else:
            assert isinstance(a.error, ProtocolPanic)
            assert len(acks.effects) <= before + 1


@simulated
def test_f1_13_two_collectors_advance_at_once(seed: int) -> None:
    """Both orders, lost answers: the boundary ends at the greater target and never goes back (the rules watch)."""
    chance = random.Random(seed)
    acks = Acknowledged()
    options = SimOptions(latency_s=chance.choice((0.0, 0.01)), attributes=chance.random() < 0.5)
    with Simulation(seed, options=options) as sim:
        rules = toy_rules()
        sim.watch(rules)
        prepare(sim, acks, 20)
        targets = {name: sorted(chance.sample(range(1, 20), 3)) for name in ("x", "y")}

        async def racing(process: SimProcess, *, targets: list[int]) -> None:
            boundary = boundary_of(process)
            for target in targets:
                await boundary.advance(target)
                assert await boundary.read() >= target

        for name, wanted in targets.items():
            process = sim.start(racing, name, targets=wanted)
            process.fail("put", BOUNDARY, Fault.AFTER, skip=chance.randrange(3))
        sim.run(hours=1)
        assert all(process.error is None for process in sim.processes)
        assert rules.boundary == max(*targets["x"], *targets["y"])


@simulated
def test_f1_14_a_collector_dies_between_advance_and_delete(seed: int) -> None:
    """The boundary is ahead of the deletions: readers do not mind, and the next run deletes."""
    chance = random.Random(seed)
    acks = Acknowledged()
    with Simulation(seed) as sim:
        rules = toy_rules()
        sim.watch(rules)
        prepare(sim, acks, 6)
        seen: list[Versioned[Effects]] = []
        sim.start(reading, "reader", seen=seen)
        sim.start(contender, "a", acks=acks, rounds=5, pause_s=200.0)
        dying = sim.start(collector, "gc")
        (dying.kill_after if chance.random() < 0.5 else dying.kill_before)("delete", "", skip=chance.randrange(3))
        sim.run(minutes=chance.uniform(10, 20))
        assert dying.is_killed
        assert rules.boundary > 0
        gc = sim.start(collector, "gc")
        sim.run(hours=1)
        gc.kill()
        acks.check(final_value(sim))
        assert [value.id for value in seen] == sorted(value.id for value in seen)
        assert list(sim.objects(TOY.directory)) == [TOY.key(rules.latest_id)]


@simulated
def test_f1_15_garbage_in_the_boundary(seed: int) -> None:
    """No write is reported as committed when the boundary cannot be read."""
    chance = random.Random(seed)
    acks = Acknowledged()
    with Simulation(seed) as sim:
        sim.watch(toy_rules(boundary_may_go=True))
        prepare(sim, acks, 3)
        a = sim.start(contender, "a", acks=acks, rounds=100, pause_s=10.0)
        garbage = chance.choice((b"", b"  ", b"12x", b"-1", b"18446744073709551616", b"\xff\xfe", b"1" * 4096))

        async def vandal(process: SimProcess) -> None:
            await process.store.put(BOUNDARY, garbage)

        sim.run(seconds=chance.uniform(0, 200))
        sim.start(vandal)
        sim.run(seconds=1)
        acknowledged = len(acks.effects)
        sim.run(hours=1)
        assert isinstance(a.error, InvalidObjectState)
        assert a.error.path == BOUNDARY
        assert len(acks.effects) <= acknowledged + 1


@simulated
def test_f1_16_the_boundary_is_forced_to_the_latest(seed: int) -> None:
    """An operator's error that would let every reader spin for ever is reported after ten rounds."""
    acks = Acknowledged()
    chance = random.Random(seed)
    with Simulation(seed) as sim:
        prepare(sim, acks, 5)
        sim.memory._store(BOUNDARY, str(5 + chance.randrange(3)).encode(), None)
        requests = sim.history.requests
        reader = sim.start(reading, "reader", seen=[])
        writer = sim.start(contender, "a", acks=acks, rounds=1)
        sim.run(hours=1)
        for process in (reader, writer):
            assert isinstance(process.error, InvalidObjectState)
            assert "at or above" in str(process.error)
        assert sim.history.requests - requests < 100


@simulated
def test_f1_19_an_epoch_claim_against_endless_conflicts(seed: int) -> None:
    """Somebody is always faster: the claim gives up after 300 seconds of virtual time."""
    acks = Acknowledged()
    with Simulation(seed) as sim:
        sim.watch(toy_rules())
        prepare(sim, acks, 3)

        async def claiming(process: SimProcess) -> None:
            store = toy_store(process)
            await Fenceable.claim(await store.load(), OWNER)

        claimer = sim.start(claiming)

        def overtake() -> None:
            key = TOY.key(max(int(key[-29:-9]) for key in sim.objects(TOY.directory)))
            value = TOY.decode(sim.objects()[key], key)
            following = TOY.encode(value.with_effect(f"rival.{key[-14:-9]}") or value)
            sim.memory._store(TOY.key(int(key[-29:-9]) + 1), following, None)
            claimer.network.hook(Moment.BEFORE, "put", TOY.directory, overtake)

        claimer.network.hook(Moment.BEFORE, "put", TOY.directory, overtake)
        sim.run(hours=1)
        assert isinstance(claimer.error, ObjectUpdateTimeout)
        assert 300 <= sim.loop.time() < 310


@simulated
def test_owners_fence_each_other(seed: int) -> None:
    """Of many owners only the newest goes on; an older one never gets anything acknowledged after a newer claim."""
    acks = Acknowledged()
    claims: list[int] = []
    with Simulation(seed, swarm=True) as sim:
        sim.watch(toy_rules())
        sim.start(collector, "gc")

        async def owning(process: SimProcess, *, start_s: float) -> None:
            await anyio.sleep(start_s)
            store = toy_store(process)
            owner = await Fenceable.claim(await load_or_create(store), OWNER)
            claims.append(owner.epoch)
            for number in range(10):
                await anyio.sleep(process.rng.uniform(0, 60))
                name = f"{process.name}.{number}"
                acks.begun.append(name)
                committed = await owner.apply(lambda current, name=name: current.value.with_effect(name))
                acks.effects.append(name)
                assert committed.value.epoch == owner.epoch, "committed on top of a newer owner"

        owners = [sim.start(owning, f"o{number}", start_s=sim.rng.uniform(0, 600)) for number in range(4)]
        sim.run(hours=6)
        for process in sim.running:
            process.kill()
        acks.check(final_value(sim))
        assert len(set(claims)) == len(claims)
        assert all(
            owner.error is None or isinstance(owner.error, FencedError | ObjectUpdateTimeout) for owner in owners
        )
