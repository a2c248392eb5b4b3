"""Two-phase creates under faults: creators, a collector, recovery and the sweep of staged objects at once.

Source: docs/reference/protocol.md 16.7.
"""

import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import anyio
import pytest

from shale.errors import InvalidObjectState, ObjectUpdateTimeout, UnavailableError
from shale.store.retry import RetryingStore
from shale.store.transactional.memory import MemoryTransactionalStore
from shale.store.transactional.port import CommitRecord, Slot
from shale.store.two_phase import commit, recovery
from shale.store.two_phase.commit import TwoPhaseCommits
from shale.store.two_phase.recovery import TwoPhaseRecovery, staged_orphans
from shale.store.two_phase.store import TwoPhaseStore, two_phase_of
from shale.testing.simulation import STORE_VARIABLE, SimProcess, Simulation
from shale.testing.swarm import SimOptions
from shale.types import CasMode
from tests.simulation.conftest import simulated
from tests.simulation.mutations import seed_that_fails
from tests.simulation.protocol.effects import TOY, Acknowledged, collector, contender, final_value, toy_rules, toy_store

MIN_AGE_MS = 60_000
"""Much less than processes freeze, so that the collector passes puts that go on."""
SEEDS_MAX = 200


@pytest.fixture(autouse=True)
def _two_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STORE_VARIABLE, CasMode.TWO_PHASE)


def two_phase_store_of(process: SimProcess) -> TwoPhaseStore:
    found = two_phase_of(process.store)
    assert found is not None
    return found


async def recovering(process: SimProcess, *, min_age_ms: int | None = 10_000, once: bool = False) -> None:
    """Finish what others left, until stopped or once."""
    loop = TwoPhaseRecovery(two_phase_store_of(process), process.env, process.metrics, "toy/")
    while True:
        with suppress(UnavailableError):
            result = await loop.recover(min_age_ms=min_age_ms)
            lost = [str(error) for error in result.errors.values() if isinstance(error, InvalidObjectState)]
            assert not lost, lost
            if once and not result.errors:
                return
        await anyio.sleep(process.rng.uniform(1, 60))


async def sweeping(process: SimProcess) -> None:
    """Delete old staged objects that no put needs any more."""
    store = RetryingStore(two_phase_store_of(process), process.env)
    while True:
        with suppress(UnavailableError):
            now_ms = process.env.clock.now_ms()
            async for page in staged_orphans(store, TOY.directory, now_ms=now_ms, min_age_ms=MIN_AGE_MS):
                for meta in page:
                    await process.store.delete(meta.key)
        await anyio.sleep(process.rng.uniform(1, 120))


async def patient_collector(process: SimProcess) -> None:
    """Collect with a short minimum age, through all errors."""
    while True:
        with suppress(UnavailableError):
            await collector(process, min_age_ms=MIN_AGE_MS, interval_s=20.0)
        await anyio.sleep(1)


async def comparing(process: SimProcess, latest_id: Callable[[], int]) -> None:
    """Read the latest version again and again: it is none that was replaced before the read began."""
    store = toy_store(process)
    while True:
        known = latest_id()
        with suppress(UnavailableError):
            latest = await store.try_read_latest()
            assert (latest.id if latest is not None else 0) >= known, f"{latest} is older than {known}"
        await anyio.sleep(process.rng.uniform(0, 5))


def run_all(seed: int) -> None:
    """Run everything at once, then end all faults and compare."""
    acks = Acknowledged()
    options = replace(SimOptions.swarm(random.Random(f"{seed}/swarm")), attributes=random.Random(seed).random() < 0.3)
    with Simulation(seed, options=options) as sim:
        rules = toy_rules()
        sim.watch(rules)
        sim.restart_killed(60)
        for number in range(3):
            sim.start(contender, f"p{number}", acks=acks, rounds=12, pause_s=sim.rng.choice((0.0, 10.0, 100.0)))
        for main, name in ((patient_collector, "gc"), (recovering, "recovery"), (sweeping, "sweep")):
            sim.start(main, name)
        sim.start(comparing, "reader", latest_id=lambda: rules.latest_id)
        sim.run(hours=4, until=lambda: not any(process.name.startswith("p") for process in sim.running))
        sim.heal()
        sim.run(hours=30, until=lambda: not any(process.name.startswith("p") for process in sim.running))
        sim.kill_all()
        last = sim.start(recovering, "last", min_age_ms=None, once=True)
        sim.run(hours=1)
        assert last.error is None, last.error
        assert sim.records.uncommitted == []
        acks.check(final_value(sim))
        assert TOY.key(rules.latest_id) in sim.memory.objects
        sim.check_errors(*EXPECTED)


EXPECTED = (ObjectUpdateTimeout, UnavailableError)


@pytest.mark.fault("F7.1", "F7.2", "F7.3", "F7.4", "F7.5", "F7.7", "F7.9", "F7.10")
@simulated
def test_every_effect_is_committed_once_while_all_take_part(seed: int) -> None:
    """Kills, freezes of hours, lost and late answers: no effect is lost, none is twice, no put stays unfinished."""
    run_all(seed)


@pytest.mark.fault("F7.4", "F1.4")
@simulated
def test_a_process_at_a_pinned_version_finds_the_newest(seed: int) -> None:
    """Version 1 stays for a checkpoint, and the ids after it are gone: a refused create must not be tried for ever."""
    acks = Acknowledged()
    with Simulation(seed) as sim:
        sim.watch(toy_rules())

        async def sleeper(process: SimProcess) -> None:
            stored = await toy_store(process).load()
            await anyio.sleep(30)
            acks.begun.append("sleeper")
            await stored.apply(lambda current: current.value.with_effect("sleeper"))
            acks.effects.append("sleeper")

        async def pinning_collector(process: SimProcess) -> None:
            store = toy_store(process)
            await anyio.sleep(20)
            await store.advance_boundary(4)
            await store.delete_many([2, 3, 4])

        sim.start(contender, "first", acks=acks, rounds=0)
        sim.run(seconds=1)
        sleeping = sim.start(sleeper)
        sim.start(contender, "others", acks=acks, rounds=6, pause_s=1.0)
        sim.start(pinning_collector, "gc")
        sim.run(minutes=10)
        assert sleeping.has_ended, "it tries to create an id that was deleted"
        acks.check(final_value(sim))
        assert "sleeper" in acks.effects


@pytest.mark.fault("F7.6")
@simulated
def test_nothing_is_acknowledged_without_the_transactional_store(seed: int) -> None:
    """What exists can be read meanwhile, and puts go on when it is back."""
    acks = Acknowledged()
    with Simulation(seed, options=SimOptions(latency_s=0.01)) as sim:
        sim.watch(toy_rules())
        sim.start(contender, "a", acks=acks, rounds=40, pause_s=10.0)
        sim.run(seconds=60)
        insert = MemoryTransactionalStore.insert
        before = list(acks.effects)

        async def away(self: MemoryTransactionalStore, record: CommitRecord, slot: Slot | None) -> CommitRecord | None:
            raise UnavailableError("away")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MemoryTransactionalStore, "insert", away)
            sim.run(seconds=120)
            assert len(acks.effects) <= len(before) + 1
            held = len(acks.effects)
            assert final_value(sim).done
            sim.run(seconds=30)
            assert len(acks.effects) == held
        assert MemoryTransactionalStore.insert is insert
        sim.run(hours=1)
        assert len(acks.effects) == 40
        acks.check(final_value(sim))


async def copies_before_the_record(
    self: TwoPhaseCommits, key: str, parts: commit.Parts, put_id: str, attributes: Mapping[str, str] | None
) -> CommitRecord:
    await self._objects.put(key, parts)
    return await ORIGINAL_INSERT(self, key, parts, put_id, attributes)


async def inserts_below_the_mark(
    self: MemoryTransactionalStore, record: CommitRecord, slot: Slot | None
) -> CommitRecord | None:
    del slot
    return self.by_destination.setdefault(record.destination, record)


async def overwrites_records(
    self: MemoryTransactionalStore, record: CommitRecord, slot: Slot | None
) -> CommitRecord | None:
    if slot is not None and slot.id <= self.marks.get(slot.namespace, 0):
        return None
    self.by_destination[record.destination] = record
    return record


async def every_old_one(store: RetryingStore, records: object, key: str, mark: int) -> bool:
    del store, records, key, mark
    return True


async def reads_without_help(self: TwoPhaseStore, key: str, read: Callable[[], Awaitable[Any]]) -> Any:
    del self, key
    return await read()


async def commits_before_the_copy(self: TwoPhaseCommits, record: CommitRecord, *_: object) -> bool:
    await self._records.set_committed(record)
    await self._objects.delete(record.source)
    await self._objects.copy(record.source, record.destination)
    return True


ORIGINAL_INSERT = TwoPhaseCommits.insert


@pytest.mark.parametrize(
    ("target", "name", "broken"),
    [
        pytest.param(TwoPhaseCommits, "insert", copies_before_the_record, id="copying before the record"),
        pytest.param(MemoryTransactionalStore, "insert", inserts_below_the_mark, id="inserting below the mark"),
        pytest.param(MemoryTransactionalStore, "insert", overwrites_records, id="overwriting a record"),
        pytest.param(recovery, "_is_orphan", every_old_one, id="sweeping by age alone"),
        pytest.param(TwoPhaseStore, "_or_helped", reads_without_help, id="probing without help"),
        pytest.param(TwoPhaseCommits, "write_destination", commits_before_the_copy, id="committing before the copy"),
    ],
)
def test_a_broken_step_is_found(target: Any, name: str, broken: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, name, broken)
    seed_that_fails(run_all, SEEDS_MAX)
