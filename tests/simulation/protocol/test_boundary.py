"""Boundaries and epochs under faults.

Source: docs/reference/protocol.md 16.1.
"""

import random
from typing import TYPE_CHECKING

import anyio
import pytest

from shale.errors import FencedError, InvalidObjectState, ObjectUpdateTimeout, ProtocolPanic
from shale.protocol.boundary import Boundary
from shale.protocol.options import MissingBoundary, ProtocolOptions
from shale.protocol.transactional import Fenceable
from shale.testing.faults import Fault
from shale.testing.sim_network import HookPoint
from shale.testing.simulation import SimProcess, Simulation
from shale.testing.swarm import SimOptions
from tests.simulation.conftest import simulated
from tests.simulation.first_version import load_or_create
from tests.simulation.protocol.effects import (
    OWNER,
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
from tests.simulation.protocol.test_sequenced_files import prepare, prepared_simulation

if TYPE_CHECKING:
    from shale.protocol.versioned import Versioned

BOUNDARY = TOY.boundary_key
REORDERING = SimOptions(latency_s=0.5, slow=0.5, slow_s=20.0)


def boundary_of(process: SimProcess, missing: MissingBoundary = MissingBoundary.PANIC) -> Boundary:
    options = ProtocolOptions(missing_boundary=missing)
    return Boundary(process.store, TOY, process.env, process.metrics, options)


async def many_reads(process: SimProcess, learned: list[int], *, reads: int) -> None:
    """Read the boundary many times concurrently and record the cached value after each response."""
    boundary = boundary_of(process)

    async def one() -> None:
        await anyio.sleep(process.rng.uniform(0, 100))
        await boundary.read()
        if boundary.observed is not None:
            learned.append(boundary.observed)

    async with anyio.create_task_group() as tasks:
        for _ in range(reads):
            tasks.start_soon(one)


async def advancing(process: SimProcess, *, targets: list[int]) -> None:
    boundary = boundary_of(process)
    for target in targets:
        await anyio.sleep(process.rng.uniform(0, 20))
        await boundary.advance(target)


@pytest.mark.fault("F1.10")
@simulated
def test_the_observed_boundary_never_moves_back_when_responses_are_reordered(seed: int) -> None:
    """The cached boundary never decreases, and a late response is no error."""
    learned: list[int] = []
    with Simulation(seed, options=REORDERING) as sim:
        reader = sim.start(many_reads, "reader", learned=learned, reads=60)
        sim.start(advancing, "gc", targets=[3, 4, 7, 11])
        sim.run(hours=1)
        assert reader.error is None
    assert learned == sorted(learned)
    assert learned


@pytest.mark.fault("F1.11")
@simulated
def test_a_not_found_sent_before_the_boundary_existed_reads_as_zero(seed: int) -> None:
    """A read that was sent before the file existed may return "not found" after the file was seen: that is value 0."""
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
        process.network.hook(
            HookPoint.AFTER, "get", BOUNDARY, lambda: setattr(process.network, "next_response_s", 10.0)
        )
        sim.run(hours=1)
        assert process.error is None
    assert values == [5, 0]


@pytest.mark.fault("F1.12")
@simulated
@pytest.mark.parametrize("missing", list(MissingBoundary))
def test_a_boundary_that_disappears_stops_the_process(seed: int, missing: MissingBoundary) -> None:
    """By default the process stops before it reports a result; the option reads a missing boundary as 0."""
    chance = random.Random(seed)
    acks = Acknowledged()
    with Simulation(seed, tolerates_panic=True) as sim:
        sim.watch(toy_rules(boundary_may_go=True, boundaries=False))
        prepare(sim, acks, 3)
        a = sim.start(contender, "a", acks=acks, rounds=200, pause_s=60.0, missing_boundary=missing)
        gc = sim.start(collector, "gc")
        sim.run(seconds=chance.uniform(1500, 2500))
        gc.kill()

        before = len(acks.effects)
        sim.stored.remove_boundary(BOUNDARY)
        sim.run(hours=5)
        if missing is MissingBoundary.ZERO:
            assert a.error is None
            assert len(acks.effects) == 202
        else:
            assert isinstance(a.error, ProtocolPanic)
            assert len(acks.effects) <= before + 1


@pytest.mark.fault("F1.13")
@simulated
def test_concurrent_advances_end_at_the_greatest_boundary(seed: int) -> None:
    """Both orders, lost responses: the boundary ends at the greater target and never decreases (the rules check it)."""
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


@pytest.mark.fault("F1.14")
@simulated
def test_the_next_run_deletes_what_a_dead_collector_left_below_the_boundary(seed: int) -> None:
    """The boundary is ahead of the deletions: readers are not affected, and the next run deletes."""
    chance = random.Random(seed)
    with prepared_simulation(seed, 6) as (sim, rules, acks):
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


@pytest.mark.fault("F1.15")
@pytest.mark.native_only("a low-water mark is a number, not a file that can hold anything")
@simulated
def test_no_write_commits_when_the_boundary_is_unreadable(seed: int) -> None:
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


@pytest.mark.fault("F1.16")
@simulated
def test_a_boundary_forced_to_the_latest_id_is_reported(seed: int) -> None:
    """An operator's error that would make every reader retry for ever is reported after ten rounds."""
    acks = Acknowledged()
    chance = random.Random(seed)
    with Simulation(seed) as sim:
        prepare(sim, acks, 5)
        sim.stored.write(BOUNDARY, str(5 + chance.randrange(3)).encode())
        requests = sim.history.requests
        reader = sim.start(reading, "reader", seen=[])
        writer = sim.start(contender, "a", acks=acks, rounds=1)
        sim.run(hours=1)
        for process in (reader, writer):
            assert isinstance(process.error, InvalidObjectState)
            assert "at or above" in str(process.error)
        assert sim.history.requests - requests < 100


@pytest.mark.fault("F1.19")
@simulated
def test_an_epoch_claim_times_out_under_endless_conflicts(seed: int) -> None:
    """Another claimant is always first: the claim fails after 300 seconds of virtual time."""
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
            sim.stored.write(TOY.key(int(key[-29:-9]) + 1), following)
            claimer.network.hook(HookPoint.BEFORE, "put", TOY.directory, overtake)

        claimer.network.hook(HookPoint.BEFORE, "put", TOY.directory, overtake)
        sim.run(hours=1)
        assert isinstance(claimer.error, ObjectUpdateTimeout)
        assert 300 <= sim.loop.time() < 310


@simulated
def test_owners_fence_each_other(seed: int) -> None:
    """Only the newest of many owners continues; no write of an older one is acknowledged after a newer claim."""
    acks = Acknowledged()
    claims: list[int] = []
    with Simulation(seed, swarm=True) as sim:
        sim.watch(toy_rules())
        sim.start(collector, "gc")

        async def owning(process: SimProcess, *, start_s: float) -> None:
            await anyio.sleep(start_s)
            store = toy_store(process)
            owner = await Fenceable.claim(await load_or_create(store, Effects()), OWNER)
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
