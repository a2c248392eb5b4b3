"""Temporaries beside numbered files: which of them a pass deletes, and what it leaves alone."""

import os
import random
from pathlib import Path
from typing import Any

import pytest

from shale.env import Env, InlineCpu
from shale.errors import AlreadyExists, UnavailableError
from shale.gc.collector import Collector
from shale.gc.options import GcOptions, Task, TaskOptions
from shale.gc.staged import is_temporary
from shale.protocol.manifest_store import ManifestStore
from shale.store.local_store.adapter import LocalStore
from shale.store.memory import MemoryStore
from shale.store.options import RetryPolicy
from shale.store.port import CREATE, PUT_ID, ObjectStore
from shale.store.retry import RetryingStore
from shale.store.transactional.memory import MemoryTransactionalStore
from shale.store.transactional.port import CommitRecord
from shale.store.two_phase.recovery import staged_orphans
from shale.store.two_phase.store import TwoPhaseStore
from shale.telemetry.metrics import Metrics
from shale.types import Manifest
from tests.clocks import ManualClock
from tests.unit.store.two_phase.plain_store import Killed, Place, Requests

pytestmark = pytest.mark.anyio

DAY_MS = 86_400_000
NAME = f"{7:020}"
STAGED = f"db/manifest/{NAME}.manifest.01ARZ3NDEKTSV4RRFFQ69G5FAV.0123456789abcdef"
TEMPORARIES = (
    f"db/manifest/{NAME}.manifest.tmp",
    f"db/compactions/{NAME}.compactions.part",
    f"db/wal/{NAME}.sst#1",
    STAGED,
    "db/.shale-preflight/01ARZ3NDEKTSV4RRFFQ69G5FAV/list/00",
)
FOREIGN = ("db/manifest/notes.txt", "db/wal/8.sst", f"db/wal/{NAME}.tmp", f"db/wal/{NAME}.manifest.tmp", "db/x.tmp")
AT_ONCE = TaskOptions(min_age_s=0)


class World:
    """A database, its clock, and collectors of it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.metrics = Metrics()
        self.env = Env(self.clock, random.Random(1), InlineCpu())

    async def create(self, store: ObjectStore) -> None:
        await ManifestStore(store, "db", self.env, Metrics()).create_new(Manifest())

    async def sweep(self, store: ObjectStore, **options: Any) -> Collector:
        collector = Collector(store, "db", self.env, GcOptions(staged=AT_ONCE), self.metrics, **options)
        await collector.sweep(Task.STAGED)
        return collector

    def orphans(self) -> float:
        found = self.metrics.registry.get_sample_value("slatedb_two_phase_orphans_deleted_total", {"db": ""})
        return found or 0.0


@pytest.mark.parametrize("key", [*TEMPORARIES[:4]])
def test_a_numbered_name_with_something_after_it_is_a_temporary(key: str) -> None:
    assert is_temporary(f"{key.rpartition('/')[0]}/", key)


@pytest.mark.parametrize("key", [*FOREIGN, f"db/wal/{NAME}.sst", f"db/wal/{NAME}.sst.d/x"])
def test_other_names_are_none(key: str) -> None:
    assert not is_temporary("db/wal/", key)
    assert not is_temporary("db/manifest/", key)


async def test_temporaries_of_dead_processes_go_after_a_day_and_other_objects_stay() -> None:
    world = World()
    store = MemoryStore(world.clock)
    await world.create(store)
    for key in (*TEMPORARIES, *FOREIGN):
        await store.put(key, b"x")
    before = set(store.objects)
    store_data = {key: value.data for key, value in store.objects.items()}
    world.clock.ms += DAY_MS
    await world.sweep(store)
    assert set(store.objects) == before, "not older than a day"
    world.clock.ms += 1
    collector = await world.sweep(store)
    assert before - set(store.objects) == set(TEMPORARIES)
    progress = collector.states[Task.STAGED].progress
    assert progress.deleted == progress.planned == len(TEMPORARIES)
    listed = {key for key in before if key != "db/x.tmp"}
    assert (progress.listed, progress.listed_bytes) == (len(listed), sum(len(store_data[key]) for key in listed))
    assert world.orphans() == 0


async def test_those_of_a_wal_in_its_own_store() -> None:
    world = World()
    store, wal_store = MemoryStore(world.clock), MemoryStore(world.clock)
    await world.create(store)
    for each in (store, wal_store):
        await each.put(f"db/wal/{NAME}.sst.tmp", b"x")
    world.clock.ms += DAY_MS + 1
    await world.sweep(wal_store=wal_store, store=store)
    assert list(wal_store.objects) == []
    assert f"db/wal/{NAME}.sst.tmp" in store.objects, "that is no directory of this database"


@pytest.mark.parametrize("is_two_phase", [False, True])
async def test_files_that_killed_writes_left_in_a_local_directory(tmp_path: Path, is_two_phase: bool) -> None:
    world = World()
    world.clock.ms = Env.system().clock.now_ms()
    store: ObjectStore = LocalStore(tmp_path / "store", fsync=False)
    if is_two_phase:
        store = RetryingStore(TwoPhaseStore(store, MemoryTransactionalStore(), world.env), world.env)
    await world.create(store)
    root = tmp_path / "store" / "db"
    old, exact, young = [], [], []
    for name in (
        f"manifest/{NAME}.manifest#1",
        f"wal/{NAME}.sst#12",
        "compacted/01ARZ3NDEKTSV4RRFFQ69G5FAV.sst#3",
        "compaction_records/01ARZ3NDEKTSV4RRFFQ69G5FAV.json#4",
        "gc/manifest.boundary#5",
    ):
        for of, path in ((old, root / name), (exact, root / f"{name}1"), (young, root / f"{name}0")):
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(b"half")
            of.append(path)
        os.utime(old[-1], (0, 0))
        os.utime(exact[-1], ns=(0, (world.clock.ms - DAY_MS) * 1_000_000))
    collector = await world.sweep(store)
    assert not any(path.exists() for path in old)
    assert all(path.exists() for path in exact), "not older than a day"
    assert all(path.exists() for path in young), "a put may still go on"
    progress, manifests = collector.states[Task.STAGED].progress, 1
    assert (progress.listed, progress.deleted) == (len([*old, *exact, *young]) + manifests, len(old))
    assert await ManifestStore(store, "db", world.env, Metrics()).try_read_latest() is not None


async def test_a_saved_plan_names_them() -> None:
    world = World()
    store = MemoryStore(world.clock)
    await world.create(store)
    await store.put(STAGED, b"x")
    world.clock.ms += DAY_MS + 1
    options = GcOptions(manifest=None, wal=None, compacted=None, compactions=None, detach=None)
    collector = Collector(store, "db", world.env, options, world.metrics)
    plan = await collector.plan()
    assert [each.key for each in plan.objects] == [STAGED]
    assert STAGED in store.objects
    await collector.execute(plan)
    assert STAGED not in store.objects


async def staged(place: Place, key: str, put_id: str, *, kill_after: int = 1) -> None:
    """Kill a create after some of its steps."""
    process = place.process(Requests(kill_after=kill_after))
    with pytest.raises(Killed):
        await process.put(key, b"frozen", mode=CREATE, attributes={PUT_ID: put_id})


WAL = "db/wal/{:020}.sst"
PUT = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
OTHER = "01ARZ3NDEKTSV4RRFFQ69G5FAW"


@pytest.mark.fault("F7.9")
async def test_a_writer_that_is_frozen_for_days_finds_its_source_while_its_id_is_free() -> None:
    world = World()
    place = Place(world.clock)
    await world.create(place.process())
    await staged(place, WAL.format(2), PUT)
    for _ in range(3):
        world.clock.ms += 3 * DAY_MS
        await world.sweep(place.process())
    thawed = place.process()
    await thawed.put(WAL.format(2), b"frozen", mode=CREATE, attributes={PUT_ID: PUT})
    found = await thawed.get(WAL.format(2))
    assert found is not None
    assert bytes(found.data) == b"frozen"
    assert world.orphans() == 0


@pytest.mark.fault("F7.9")
@pytest.mark.parametrize("is_collected", [False, True], ids=["taken", "taken and collected"])
async def test_a_frozen_writer_whose_id_was_taken_loses_its_source_and_the_id(is_collected: bool) -> None:
    world = World()
    place = Place(world.clock)
    await world.create(place.process())
    await staged(place, WAL.format(2), PUT)
    await place.process().put(WAL.format(2), b"winner", mode=CREATE, attributes={PUT_ID: OTHER})
    if is_collected:  # with its record and its staged objects
        await place.process().delete(WAL.format(2))
        assert not any(key.startswith(WAL.format(2)) for key in place.keys)
        await staged(place, WAL.format(2), PUT)  # a process that was frozen even before its first step
    world.clock.ms += 3 * DAY_MS
    await world.sweep(place.process())
    assert world.orphans() == 1
    with pytest.raises(AlreadyExists):
        await place.process().put(WAL.format(2), b"frozen", mode=CREATE, attributes={PUT_ID: PUT})
    left = [key for key in place.keys if key.startswith(WAL.format(2))]
    assert left == ([] if is_collected else [WAL.format(2)])


async def test_a_source_whose_record_waits_is_kept_whatever_the_mark_says() -> None:
    world = World()
    place = Place(world.clock)
    await world.create(place.process())
    await staged(place, WAL.format(5), PUT, kill_after=2)
    await place.records.raise_low_water_mark("db/wal", 9)
    before = place.keys
    world.clock.ms += 3 * DAY_MS
    store = RetryingStore(place.process(), world.env)
    pages = staged_orphans(store, "db/wal/", now_ms=world.clock.ms, min_age_ms=DAY_MS)
    assert [page async for page in pages] == []
    assert place.keys == before


class FlakyRecords(MemoryTransactionalStore):
    """Every read of the sweep is answered only when it is repeated."""

    def __init__(self) -> None:
        super().__init__()
        self.failed: list[str] = []

    def fail_once(self, name: str) -> None:
        if name not in self.failed:
            self.failed.append(name)
            raise UnavailableError(f"{name}: no answer")

    async def get(self, destination: str) -> CommitRecord | None:
        if destination == WAL.format(2):
            self.fail_once("get")
        return await super().get(destination)

    async def low_water_mark(self, namespace: str) -> int:
        if namespace == "db/wal":
            self.fail_once("low_water_mark")
        return await super().low_water_mark(namespace)


async def test_a_request_for_a_record_is_repeated_as_one_for_an_object() -> None:
    world = World()
    place = Place(world.clock)
    await world.create(place.process())
    await staged(place, WAL.format(2), PUT, kill_after=4)
    records = FlakyRecords()
    records.by_destination.update(place.records.by_destination)
    place.records = records
    world.clock.ms += DAY_MS + 1
    await world.sweep(RetryingStore(place.process(), world.env, RetryPolicy(first_delay_s=0.0)))
    assert records.failed == ["low_water_mark", "get"]
    assert world.orphans() == 1


async def test_the_source_of_a_committed_record_goes() -> None:
    world = World()
    place = Place(world.clock)
    await world.create(place.process())
    await staged(place, WAL.format(2), PUT, kill_after=4)
    world.clock.ms += DAY_MS + 1
    collector = await world.sweep(place.process())
    assert collector.states[Task.STAGED].progress.listed == 3, "the manifest, the file and its source"
    assert place.keys[1:] == [WAL.format(2)]
    assert world.orphans() == 1
