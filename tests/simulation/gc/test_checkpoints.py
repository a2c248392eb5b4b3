"""Checkpoints beside the collector and under faults.

Source: docs/reference/protocol.md 16.5.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import anyio
import pytest

from shale.admin.checkpoints import CheckpointAdmin
from shale.admin.context import AdminContext
from shale.engine.flush import checkpointing
from shale.engine.location import DatabaseStores
from shale.errors import CheckpointMissing, UnavailableError
from shale.format.names import manifest_key
from shale.gc import sweeps
from shale.gc.options import Task, options_for
from shale.protocol import checkpoints
from shale.testing.database_invariants import DatabaseInvariants
from shale.testing.mutation_log import Mutation
from shale.testing.sim_network import HookPoint
from shale.testing.sim_process import START_MS
from shale.testing.simulation import SimProcess, Simulation
from shale.testing.swarm import SimOptions
from shale.types import Checkpoint, Manifest
from tests.simulation.compactor import lsm
from tests.simulation.conftest import FEW_SEEDS, simulated, simulated_slowly
from tests.simulation.coverage_marks import CoverageMarks, row
from tests.simulation.gc.harness import (
    ROOT,
    Work,
    collect_once,
    collector,
    load_existing,
    manifests_of,
    quick,
    start_work,
)
from tests.simulation.mutations import MUTATION_SEEDS, seed_that_fails
from tests.simulation.reader.reader_processes import (
    COMPACTION,
    EAGER,
    ExpectedState,
    open_reader,
    until_it_works_again,
    writer,
)
from tests.simulation.writer.writers import open_db

MANIFESTS = f"{ROOT}/manifest/"
COPIED = "a checkpoint was copied while the collector slept"
CREATED = "a checkpoint of a new version was made while the collector slept"
COLLECTED = "a version was collected afterwards"


class PinnedVersions:
    """Checks that every version that a live checkpoint of the newest manifest names exists."""

    def __init__(self, rules: DatabaseInvariants) -> None:
        self._rules = rules

    def after(self, mutation: Mutation, sim: Simulation) -> None:
        """See ``Invariants``."""
        if not mutation.key.startswith(MANIFESTS) or not self._rules.manifests.latest_id:
            return
        now_ms = START_MS + int(sim.loop.time() * 1000)
        for entry in self._rules.manifests.latest.checkpoints:
            key = manifest_key(ROOT, entry.manifest_id)
            assert entry.is_expired(now_ms) or key in sim.stored, f"{mutation}: {entry} names what is gone"


def watched(sim: Simulation) -> DatabaseInvariants:
    rules = DatabaseInvariants(ROOT)
    sim.watch(rules, PinnedVersions(rules))
    return rules


def checkpoints_of(process: SimProcess) -> CheckpointAdmin:
    stores = DatabaseStores(process.store, None, ())
    return CheckpointAdmin(AdminContext.of(stores, ROOT, process.env, process.metrics))


@dataclass
class Kept:
    """The results that administrators received, and the loop times of their copies and new checkpoints."""

    made: dict[UUID, Checkpoint] = field(default_factory=dict)
    copied_at_s: list[float] = field(default_factory=list)
    created_at_s: list[float] = field(default_factory=list)


async def keeper(process: SimProcess, kept: Kept, *, rounds: int = 25, pause_s: float = 10.0) -> None:
    """Create, copy, refresh and delete checkpoints; repeat a call with a lost response under the same id."""
    await load_existing(manifests_of(process))
    admin, rng = checkpoints_of(process), process.rng
    for _ in range(rounds):
        await anyio.sleep(rng.uniform(0, pause_s))
        subject = rng.choice(list(kept.made)) if kept.made else None
        op = rng.choice(("create", "copy", "copy", "refresh", "delete")) if subject is not None else "create"
        wanted, lifetime = process.env.ids.uuid(), rng.choice((None, 30, 3600))
        if op in ("create", "copy"):
            await _make(process, admin, kept, wanted, lifetime, subject if op == "copy" else None)
        elif op == "refresh":
            assert subject is not None
            del kept.made[subject]  # which end it has is not known until the answer is there
            await again(process, lambda: admin.refresh(subject, None))  # noqa: B023 - called at once
            kept.made[subject] = await again(process, lambda: admin.get(subject))  # noqa: B023
        else:
            assert subject is not None
            del kept.made[subject]
            await again(process, lambda: admin.delete(subject))  # noqa: B023


async def _make(
    process: SimProcess, admin: CheckpointAdmin, kept: Kept, wanted: UUID, lifetime: int | None, source: UUID | None
) -> None:
    try:
        made = await again(process, lambda: admin.create(lifetime, source, checkpoint_id=wanted))
    except CheckpointMissing:
        assert source is not None
        assert kept.made[source].is_expired(process.env.clock.now_ms()), "a checkpoint went before its end"
        return
    assert made.id == wanted
    assert source is None or made.manifest_id == kept.made[source].manifest_id
    # Short ones may go at any time; the others have to be there at the end.
    if lifetime != 30:
        kept.made[wanted] = made
    (kept.created_at_s if source is None else kept.copied_at_s).append(process.sim.loop.time())


async def again(process: SimProcess, call: Callable[[], Any]) -> Any:
    while True:
        try:
            return await call()
        except UnavailableError:
            await anyio.sleep(process.rng.uniform(0, 2))


def check_kept(sim: Simulation, rules: DatabaseInvariants, kept: Kept) -> None:
    """Check that every confirmed checkpoint is listed once, as confirmed, and can be read."""
    listed = rules.manifests.latest.checkpoints
    assert len({entry.id for entry in listed}) == len(listed)
    for entry in kept.made.values():
        assert rules.manifests.latest.checkpoint(entry.id) == entry
        assert manifest_key(ROOT, entry.manifest_id) in sim.stored


def sleeping_collector(sim: Simulation, op: str, when: HookPoint, chance: random.Random) -> list[tuple[float, float]]:
    """Run a collector that sleeps repeatedly around one kind of request; return the times of its sleeps."""
    gc = sim.start(collector, role="gc", options=quick(min_age_s=chance.choice((0.0, 30.0)), interval_s=30.0))
    slept: list[tuple[float, float]] = []

    def sleep() -> None:
        seconds = chance.uniform(10, 90)
        slept.append((sim.loop.time(), sim.loop.time() + seconds))
        gc.freeze(seconds)

    for number in range(4):
        gc.network.hook(when, op, MANIFESTS, sleep, skip=chance.randrange(3) + 4 * number)
    return slept


def during(times: list[float], spans: list[tuple[float, float]]) -> bool:
    return any(start < at < end for at in times for start, end in spans)


def deletions(sim: Simulation) -> int:
    return sum(each.op == "delete" for each in sim.history.of(MANIFESTS))


@contextmanager
def checked_beside_a_sleeping_collector(
    seed: int, op: str, when: HookPoint, reached: CoverageMarks
) -> Iterator[tuple[Kept, list[tuple[float, float]]]]:
    """Run administrators beside a collector that sleeps around ``op``; check their checkpoints after the block."""
    kept, chance = Kept(), random.Random(f"{seed}/test")
    with Simulation(seed, swarm=chance.random() < 0.4) as sim:
        rules = watched(sim)
        start_work(sim, Work())
        sim.start(keeper, role="admin", kept=kept)
        slept = sleeping_collector(sim, op, when, chance)
        sim.run(minutes=20)
        yield kept, slept
        finish(sim, rules, kept)
        reached(COLLECTED, when=deletions(sim) > 0)


@pytest.mark.fault("F5.2")
@row(COPIED, COLLECTED, default=FEW_SEEDS)
def test_a_checkpoint_copied_before_a_deletion_loses_nothing(seed: int, reached: CoverageMarks) -> None:
    """Objects that the collector already treats as garbage were not pinned by the source, nor by its copy."""
    with checked_beside_a_sleeping_collector(seed, "delete", HookPoint.BEFORE, reached) as (kept, slept):
        reached(COPIED, when=during(kept.copied_at_s, slept))


@pytest.mark.fault("F5.3")
@row(CREATED, COLLECTED, default=FEW_SEEDS)
def test_a_checkpoint_of_a_version_unknown_to_the_collector_loses_nothing(seed: int, reached: CoverageMarks) -> None:
    """The version was not listed, so it is no candidate."""
    with checked_beside_a_sleeping_collector(seed, "list", HookPoint.AFTER, reached) as (kept, slept):
        reached(CREATED, when=during(kept.created_at_s, slept))


def finish(sim: Simulation, rules: DatabaseInvariants, kept: Kept) -> None:
    """Stop the faults, run a last pass, and check that all confirmed checkpoints can be read."""
    sim.heal()
    sim.run(hours=1, until=lambda: not any(each.role == "admin" for each in sim.running))
    sim.kill_all()
    if not rules.manifests.latest_id:
        return
    last = sim.start(collect_once, "last", role="gc", options=quick())
    sim.run(minutes=10)
    assert last.error is None, last.error
    check_kept(sim, rules, kept)


@pytest.mark.fault("F5.4")
@pytest.mark.parametrize(("late_ms", "is_there"), [(-1, True), (0, False), (1, False)])
def test_a_checkpoint_expires_at_its_expire_time(late_ms: int, is_there: bool) -> None:
    async def pinning(process: SimProcess) -> Checkpoint:
        await manifests_of(process).create_new(Manifest())
        return await checkpoints_of(process).create(20)

    with Simulation(1, options=SimOptions.calm()) as sim:
        rules = watched(sim)
        pin = sim.start(pinning, role="admin")
        sim.run(seconds=5)
        ends_s = pin.result.expire_s - START_MS / 1000
        assert ends_s > sim.loop.time()
        one_pass = options_for({Task.MANIFEST: 0.0})
        gc = sim.start(collect_once, role="gc", options=one_pass, at_s=ends_s + late_ms / 1000)
        sim.run(minutes=5)
        assert gc.error is None
        assert (rules.manifests.latest.checkpoint(pin.result.id) is not None) == is_there


@pytest.mark.fault("F5.4")
@simulated
def test_a_reader_whose_lease_expires_during_a_gc_pass_recovers(seed: int) -> None:
    expected_state = ExpectedState()
    with Simulation(seed) as sim:
        rules = watched(sim)
        sim.start(writer, expected_state=expected_state, rounds=40)
        sleeper = sim.start(until_it_works_again, role="reader", expected_state=expected_state)
        sim.run(seconds=40)
        # While the reader goes over to a new one there may be two.
        lease = max(rules.manifests.latest.checkpoints, key=lambda each: each.expire_s)
        ends_s = lease.expire_s - START_MS / 1000
        sleeper.freeze(ends_s - sim.loop.time() + sim.rng.uniform(0, 30))
        gc = sim.start(collect_once, role="gc", options=quick(), at_s=ends_s)
        sim.run(seconds=ends_s - sim.loop.time() + 31)
        assert gc.error is None, gc.error
        assert rules.manifests.latest.checkpoint(lease.id) is None
        sim.run(hours=1)
        assert sleeper.error is None, sleeper.error
        assert sleeper.result > 0


@dataclass
class Pinned:
    """A checkpoint of a writer: it includes every row up to ``at_least`` and none above ``at_most``."""

    id: UUID
    at_least: int
    at_most: int


async def pinning_writer(
    process: SimProcess, expected_state: ExpectedState, pinned: list[Pinned], *, rounds: int, **settings: Any
) -> None:
    """Write rows and create checkpoints of both scopes concurrently."""
    rng = process.rng

    async def write(db: Any, number: int) -> None:
        key, value = b"key-%02d" % rng.randrange(12), b"%d/" % number + bytes(rng.randrange(40))
        handle = await db.put(key, value)
        expected_state.writes.append((handle.seq, key, value))

    async def pin(db: Any) -> None:
        for _ in range(rounds // 2):
            await anyio.sleep(rng.choice((0.05, rng.uniform(0, 3))))
            if rng.random() < 0.5:
                # The checkpoint's rows wait for a flush that is in progress.
                await write(db, -1)
                tasks.start_soon(db.flush, "memtable")
                await anyio.sleep(rng.uniform(0, 1))
                await write(db, -2)
            scope = rng.choice(("all", "durable"))
            source = rng.choice(pinned) if pinned and rng.random() < 0.2 else None
            at_least = (
                db.status.last_seq
                if scope == "all" and not settings.get("checkpoint_flush_timeout")
                else db.status.durable_seq
            )
            try:
                made = await db.checkpoint(scope=scope, source=None if source is None else source.id)
            except UnavailableError:
                continue
            if source is not None:
                pinned.append(Pinned(made.id, source.at_least, source.at_most))
            else:
                pinned.append(Pinned(made.id, at_least, db.status.last_seq))

    async with open_db(process, **settings) as db, anyio.create_task_group() as tasks:
        tasks.start_soon(pin, db)
        for number in range(rounds):
            await write(db, number)
            if rng.random() < 0.3:
                # Writes and checkpoints go on meanwhile.
                tasks.start_soon(db.flush, rng.choice(("wal", "memtable")))
            await anyio.sleep(rng.choice((0, 0.05, rng.uniform(0, 3))))


async def check_pinned(process: SimProcess, expected_state: ExpectedState, pinned: list[Pinned]) -> None:
    for each in pinned:
        async with open_reader(process, checkpoint=each.id) as db:
            seen = expected_state.check([row async for row in db.scan()])
            assert each.at_least <= seen <= each.at_most, f"{each} shows {seen}"


def writers_checkpoints(seed: int) -> None:
    """Rows of a writer's checkpoint stay readable beside a compactor and a collector without a minimum age."""
    expected_state, chance, pinned = ExpectedState(), random.Random(f"{seed}/test"), list[Pinned]()
    settings = {
        "writer_checkpoint": chance.random() < 0.5,
        "checkpoint_flush_timeout": chance.choice((None, None, 0.5)),
        "manifest_poll_interval": 2.0,
    }
    slow = SimOptions(latency_s=0.5) if chance.random() < 0.5 else None
    with Simulation(seed, options=slow, swarm=chance.random() < 0.5) as sim:
        watched(sim)
        work = sim.start(
            pinning_writer, role="writer", expected_state=expected_state, pinned=pinned, rounds=40, **settings
        )
        sim.start(lsm.compactor, options=COMPACTION)
        sim.start(collector, role="gc", options=EAGER)
        sim.run(hours=1, until=lambda: not work.is_running)
        sim.heal()
        sim.run(minutes=5, until=lambda: not work.is_running)
        if not sim.objects(MANIFESTS):
            return
        sim.kill_all()
        last = sim.start(check_pinned, role="reader", expected_state=expected_state, pinned=pinned)
        sim.run(hours=1)
        assert last.error is None, last.error
        assert last.has_ended


@simulated_slowly
def test_checkpoints_of_a_writer_hold_what_they_promise(seed: int) -> None:
    writers_checkpoints(seed)


@simulated
def test_a_crash_leaves_at_most_one_checkpoint_of_a_writer_and_the_next_one_takes_it(seed: int) -> None:
    expected_state, pinned = ExpectedState(), list[Pinned]()
    with Simulation(seed) as sim:
        rules = watched(sim)
        crashing = sim.start(
            pinning_writer,
            role="writer",
            expected_state=expected_state,
            pinned=pinned,
            rounds=40,
            writer_checkpoint=True,
        )
        sim.start(lsm.compactor, options=COMPACTION)
        sim.at(sim.rng.uniform(5, 60), crashing.kill)
        sim.run(seconds=61)
        left = [entry.writer_epoch for entry in rules.manifests.latest.checkpoints if entry.writer_epoch is not None]
        assert left in ([], [1])
        successor = sim.start(writer, role="writer", expected_state=ExpectedState(), rounds=3)
        sim.run(minutes=30, until=lambda: not successor.is_running)
        assert successor.error is None, successor.error
        assert not [each for each in rules.manifests.latest.checkpoints if (each.name or "").startswith("writer:")]
        listed = {entry.id for entry in rules.manifests.latest.checkpoints}
        assert {each.id for each in pinned} <= listed


def riding_too_early(patch: pytest.MonkeyPatch) -> None:
    """Attach checkpoints to the next update of any kind."""
    patch.setattr(checkpointing.PendingCheckpoints, "due", lambda self, _last_seq: tuple(self._waiting))


def pinning_the_version_before(patch: pytest.MonkeyPatch) -> None:
    """Let the entry name the version that it was derived from."""
    add = checkpoints.add_checkpoint
    patch.setattr(
        checkpointing, "add_checkpoint", lambda manifest, version, **other: add(manifest, version - 1, **other)
    )


def without_pins(patch: pytest.MonkeyPatch) -> None:
    """Let the collector ignore checkpoints."""
    plan = sweeps.plan_manifest_gc

    def unpinned(*args: Any, **other: Any) -> Any:
        return plan(*args, **{**other, "pinned": frozenset()})

    patch.setattr(sweeps, "plan_manifest_gc", unpinned)


@pytest.mark.parametrize(
    ("breaks", "scenario", "seeds"),
    [
        (riding_too_early, writers_checkpoints, 12),
        (pinning_the_version_before, writers_checkpoints, MUTATION_SEEDS),
        (without_pins, test_a_checkpoint_copied_before_a_deletion_loses_nothing, MUTATION_SEEDS),
    ],
)
def test_a_mistake_is_found(
    breaks: Callable[[pytest.MonkeyPatch], None],
    scenario: Callable[[int], object],
    seeds: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    breaks(monkeypatch)
    seed_that_fails(scenario, seeds)
