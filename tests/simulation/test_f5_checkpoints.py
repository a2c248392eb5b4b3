"""Checkpoints beside the collector and under faults: F5.2 to F5.4 of docs/protocol.md 16.5, with the real code."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import anyio
import pytest

from shale.admin.checkpoints import CheckpointAdmin
from shale.admin.place import AdminPlace
from shale.engine import checkpointing
from shale.engine.where import Stores
from shale.errors import CheckpointMissing, UnavailableError
from shale.format.names import manifest_key
from shale.garbage import sweep_versions
from shale.garbage.options import Task, options_for
from shale.protocol import checkpoints
from shale.testing.database_rules import DatabaseRules
from shale.testing.history import Mutation
from shale.testing.sim_process import START_MS
from shale.testing.sim_store import Moment
from shale.testing.simulation import SimProcess, Simulation
from shale.testing.swarm import SimOptions
from shale.types import Checkpoint, Manifest
from tests.simulation import lsm
from tests.simulation.conftest import DEFAULT_SEEDS, FEW_SEEDS, simulated, simulated_slowly
from tests.simulation.gc_house import (
    ROOT,
    Work,
    collect_once,
    collector,
    load_existing,
    manifests_of,
    quick,
    start_work,
)
from tests.simulation.mutants import first_seed_that_fails
from tests.simulation.reached import Reached, row
from tests.simulation.test_f3_reader import (
    COMPACTION,
    EAGER,
    Book,
    open_reader,
    until_it_works_again,
    writer,
)
from tests.simulation.writers import open_db

MANIFESTS = f"{ROOT}/manifest/"
COPIED = "a checkpoint was copied while the collector slept"
CREATED = "a checkpoint of a new version was made while the collector slept"
COLLECTED = "a version was collected afterwards"


class PinnedVersions:
    """Every version that a live checkpoint of the newest manifest names is there."""

    def __init__(self, rules: DatabaseRules) -> None:
        self._rules = rules

    def after(self, mutation: Mutation, sim: Simulation) -> None:
        """See ``Rules``."""
        if not mutation.key.startswith(MANIFESTS) or not self._rules.manifests.latest_id:
            return
        now_ms = START_MS + int(sim.loop.time() * 1000)
        for entry in self._rules.manifests.latest.checkpoints:
            key = manifest_key(ROOT, entry.manifest_id)
            assert entry.is_expired(now_ms) or key in sim.memory._objects, f"{mutation}: {entry} names what is gone"


def watched(sim: Simulation) -> DatabaseRules:
    rules = DatabaseRules(sim, ROOT)
    sim.watch(rules, PinnedVersions(rules))
    return rules


def checkpoints_of(process: SimProcess) -> CheckpointAdmin:
    stores = Stores(process.store, None, ())
    return CheckpointAdmin(AdminPlace.of(stores, ROOT, process.env, process.metrics))


@dataclass
class Kept:
    """What administrators were told, and when by the loop's clock they made copies and new ones."""

    made: dict[UUID, Checkpoint] = field(default_factory=dict)
    copied_at_s: list[float] = field(default_factory=list)
    created_at_s: list[float] = field(default_factory=list)


async def keeper(process: SimProcess, kept: Kept, *, rounds: int = 25, pause_s: float = 10.0) -> None:
    """Create, copy, refresh and delete; a call whose answer is lost is made again with the same id."""
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


def check_kept(sim: Simulation, rules: DatabaseRules, kept: Kept) -> None:
    """Everything that was promised is listed as it was told, once, and can be read."""
    listed = rules.manifests.latest.checkpoints
    assert len({entry.id for entry in listed}) == len(listed)
    for entry in kept.made.values():
        assert rules.manifests.latest.checkpoint(entry.id) == entry
        assert manifest_key(ROOT, entry.manifest_id) in sim.memory._objects


def sleeping_collector(sim: Simulation, op: str, when: Moment, chance: random.Random) -> list[tuple[float, float]]:
    """A collector that falls asleep again and again around one kind of request; when it slept."""
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


@row(COPIED, COLLECTED, default=FEW_SEEDS)
def test_f5_2_a_checkpoint_is_copied_while_the_collector_is_about_to_delete(seed: int, reached: Reached) -> None:
    """What it holds for garbage was none of the source's, so it is none of the copy's."""
    kept, chance = Kept(), random.Random(f"{seed}/test")
    with Simulation(seed, swarm=chance.random() < 0.4) as sim:
        rules = watched(sim)
        start_work(sim, Work())
        sim.start(keeper, role="admin", kept=kept)
        slept = sleeping_collector(sim, "delete", Moment.BEFORE, chance)
        sim.run(minutes=20)
        reached(COPIED, when=during(kept.copied_at_s, slept))
        finish(sim, rules, kept)
        reached(COLLECTED, when=deletions(sim) > 0)


@row(CREATED, COLLECTED, default=FEW_SEEDS)
def test_f5_3_a_checkpoint_of_a_new_version_while_the_collector_knows_only_older_ones(
    seed: int, reached: Reached
) -> None:
    """The version was not listed, so it is no candidate."""
    kept, chance = Kept(), random.Random(f"{seed}/test")
    with Simulation(seed, swarm=chance.random() < 0.4) as sim:
        rules = watched(sim)
        start_work(sim, Work())
        sim.start(keeper, role="admin", kept=kept)
        slept = sleeping_collector(sim, "list", Moment.AFTER, chance)
        sim.run(minutes=20)
        reached(CREATED, when=during(kept.created_at_s, slept))
        finish(sim, rules, kept)
        reached(COLLECTED, when=deletions(sim) > 0)


def finish(sim: Simulation, rules: DatabaseRules, kept: Kept) -> None:
    """No more faults; a last pass takes what it may, and what was promised is there."""
    sim.heal()
    sim.run(hours=1, until=lambda: not any(each.role == "admin" for each in sim.running))
    sim.kill_all()
    if not rules.manifests.latest_id:
        return
    last = sim.start(collect_once, "last", role="gc", options=quick())
    sim.run(minutes=10)
    assert last.error is None, last.error
    check_kept(sim, rules, kept)


@pytest.mark.parametrize(("late_ms", "is_there"), [(-1, True), (0, False), (1, False)])
def test_f5_4_a_checkpoint_ends_in_the_very_moment_of_its_end(late_ms: int, is_there: bool) -> None:
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


@simulated
def test_f5_4_a_reader_whose_lease_ends_when_the_collector_comes_begins_anew(seed: int) -> None:
    book = Book()
    with Simulation(seed) as sim:
        rules = watched(sim)
        sim.start(writer, book=book, rounds=40)
        sleeper = sim.start(until_it_works_again, role="reader", book=book)
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
    """A checkpoint of a writer: everything up to ``at_least`` is in it, nothing above ``at_most``."""

    id: UUID
    at_least: int
    at_most: int


async def pinning_writer(
    process: SimProcess, book: Book, pinned: list[Pinned], *, rounds: int, **settings: Any
) -> None:
    """Writes and checkpoints at once, of both scopes."""
    rng = process.rng

    async def write(db: Any, number: int) -> None:
        key, value = b"key-%02d" % rng.randrange(12), b"%d/" % number + bytes(rng.randrange(40))
        handle = await db.put(key, value)
        book.writes.append((handle.seq, key, value))

    async def pin(db: Any) -> None:
        for _ in range(rounds // 2):
            await anyio.sleep(rng.choice((0.05, rng.uniform(0, 3))))
            if rng.random() < 0.5:
                # What the checkpoint is to include is behind a flush that is under way.
                await write(db, -1)
                tasks.start_soon(db.flush, "memtable")
                await anyio.sleep(rng.uniform(0, 1))
                await write(db, -2)
            scope = rng.choice(("all", "durable"))
            source = rng.choice(pinned) if pinned and rng.random() < 0.2 else None
            at_least = (
                db.last_seq if scope == "all" and not settings.get("checkpoint_flush_timeout") else db.durable_seq
            )
            try:
                made = await db.checkpoint(scope=scope, source=None if source is None else source.id)
            except UnavailableError:
                continue
            if source is not None:
                pinned.append(Pinned(made.id, source.at_least, source.at_most))
            else:
                pinned.append(Pinned(made.id, at_least, db.last_seq))

    async with open_db(process, **settings) as db, anyio.create_task_group() as tasks:
        tasks.start_soon(pin, db)
        for number in range(rounds):
            await write(db, number)
            if rng.random() < 0.3:
                # Writes and checkpoints go on meanwhile.
                tasks.start_soon(db.flush, rng.choice(("wal", "memtable")))
            await anyio.sleep(rng.choice((0, 0.05, rng.uniform(0, 3))))


async def check_pinned(process: SimProcess, book: Book, pinned: list[Pinned]) -> None:
    for each in pinned:
        async with open_reader(process, checkpoint=each.id) as db:
            seen = book.check([row async for row in db.scan()])
            assert each.at_least <= seen <= each.at_most, f"{each} shows {seen}"


def writers_checkpoints(seed: int) -> None:
    """What a writer's checkpoint includes stays readable beside a compactor and a collector that takes all it can."""
    book, chance, pinned = Book(), random.Random(f"{seed}/test"), list[Pinned]()
    settings = {
        "writer_checkpoint": chance.random() < 0.5,
        "checkpoint_flush_timeout": chance.choice((None, None, 0.5)),
        "manifest_poll_interval": 2.0,
    }
    slow = SimOptions(latency_s=0.5) if chance.random() < 0.5 else None
    with Simulation(seed, options=slow, swarm=chance.random() < 0.5) as sim:
        watched(sim)
        work = sim.start(pinning_writer, role="writer", book=book, pinned=pinned, rounds=40, **settings)
        sim.start(lsm.compactor, options=COMPACTION)
        sim.start(collector, role="gc", options=EAGER)
        sim.run(hours=1, until=lambda: not work.is_running)
        sim.heal()
        sim.run(minutes=5, until=lambda: not work.is_running)
        if not sim.objects(MANIFESTS):
            return
        sim.kill_all()
        last = sim.start(check_pinned, role="reader", book=book, pinned=pinned)
        sim.run(hours=1)
        assert last.error is None, last.error
        assert last.has_ended


@simulated_slowly
def test_checkpoints_of_a_writer_hold_what_they_promise(seed: int) -> None:
    writers_checkpoints(seed)


@simulated
def test_a_crash_leaves_at_most_one_checkpoint_of_a_writer_and_the_next_one_takes_it(seed: int) -> None:
    book, pinned = Book(), list[Pinned]()
    with Simulation(seed) as sim:
        rules = watched(sim)
        crashing = sim.start(pinning_writer, role="writer", book=book, pinned=pinned, rounds=40, writer_checkpoint=True)
        sim.start(lsm.compactor, options=COMPACTION)
        sim.at(sim.rng.uniform(5, 60), crashing.kill)
        sim.run(seconds=61)
        left = [entry.name for entry in rules.manifests.latest.checkpoints if (entry.name or "").startswith("writer:")]
        assert left in ([], ["writer:1"])
        successor = sim.start(writer, role="writer", book=Book(), rounds=3)
        sim.run(minutes=30, until=lambda: not successor.is_running)
        assert successor.error is None, successor.error
        assert not [each for each in rules.manifests.latest.checkpoints if (each.name or "").startswith("writer:")]
        listed = {entry.id for entry in rules.manifests.latest.checkpoints}
        assert {each.id for each in pinned} <= listed


def riding_too_early(patch: pytest.MonkeyPatch) -> None:
    """Checkpoints ride on whatever update comes first."""
    patch.setattr(checkpointing.WaitingCheckpoints, "due", lambda self, _last_seq: tuple(self._waiting))


def pinning_the_version_before(patch: pytest.MonkeyPatch) -> None:
    """The entry names the version that it was derived from."""
    add = checkpoints.add_checkpoint
    patch.setattr(
        checkpointing, "add_checkpoint", lambda manifest, version, **other: add(manifest, version - 1, **other)
    )


def without_pins(patch: pytest.MonkeyPatch) -> None:
    """The collector does not look at checkpoints."""
    plan = sweep_versions.plan_manifest_gc

    def unpinned(*args: Any, **other: Any) -> Any:
        return plan(*args, **{**other, "pinned": frozenset()})

    patch.setattr(sweep_versions, "plan_manifest_gc", unpinned)


@pytest.mark.parametrize(
    ("breaks", "story", "seeds"),
    [
        (riding_too_early, writers_checkpoints, 4 * FEW_SEEDS),
        (pinning_the_version_before, writers_checkpoints, DEFAULT_SEEDS),
        (without_pins, test_f5_2_a_checkpoint_is_copied_while_the_collector_is_about_to_delete, DEFAULT_SEEDS),
    ],
)
def test_a_mistake_is_found(
    breaks: Callable[[pytest.MonkeyPatch], None],
    story: Callable[[int], object],
    seeds: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    breaks(monkeypatch)
    first_seed_that_fails(story, seeds)
