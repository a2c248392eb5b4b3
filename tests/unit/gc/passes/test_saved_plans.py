"""Saved plans: what they name, and whether all of it may still be deleted."""

from uuid import UUID

import pytest

from shale.errors import (
    InvalidDeletion,
)
from shale.format.names import (
    compaction_record_key,
    compactions_key,
    manifest_key,
    sst_key,
    wal_key,
)
from shale.gc.collector import require_still_deletable
from shale.gc.database import GcDatabase
from shale.gc.options import Task
from shale.gc.plan import GcPlan, PlannedObject
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.options import ProtocolOptions
from shale.store.memory import MemoryStore
from shale.store.two_phase.names import staged_key
from shale.types import (
    Compactions,
    Manifest,
)
from tests.unit.gc.passes.collector_world import AGE_S, World
from tests.unit.gc.values import external, ulid
from tests.unit.protocol.conftest import run
from tests.unit.store.two_phase.plain_store import Place


def test_only_the_parents_of_a_saved_plan_are_released() -> None:
    async def main() -> None:
        world = World()
        await world.write(Manifest(external_dbs=(external("p", final=1), external("q", final=2))))
        collector = world.collector()
        plan = await collector.plan()
        names = {each.key for each in plan.objects if each.resource is Task.DETACH}
        assert names == {f"p@{UUID(int=1)}", f"q@{UUID(int=2)}"}
        await collector.sweep(Task.DETACH, only=frozenset({f"q@{UUID(int=2)}"}))
        assert [each.path for each in (await world.manifests.read_latest()).value.external_dbs] == ["p"]

    run(main)


def test_a_plan_names_the_versions_it_was_made_of() -> None:
    async def main() -> None:
        world = World()
        await world.write(Manifest(), Manifest())
        world.clock.sleep(AGE_S + 1)
        plan = await world.collector().plan()
        assert (plan.database, plan.manifest_id, plan.compactions_id) == ("memory:///db", 2, None)
        assert plan.made_at_ms == world.clock.ms
        assert plan.min_ages_s[Task.MANIFEST] == AGE_S
        (planned,) = plan.objects
        assert (planned.key, planned.boundary, planned.why) == (manifest_key("db", 1), 1, "unreferenced")
        assert plan.size == planned.size > 0
        await CompactionsStore(world.store, "db", world.env).create_new(Compactions())
        assert (await world.collector().plan()).compactions_id == 1

    run(main)


def a_plan(*keys: str, task: Task = Task.WAL, database: str = "memory:///db", manifest_id: int = 3) -> GcPlan:
    return GcPlan(
        database=database,
        manifest_id=manifest_id,
        compactions_id=None,
        made_at_ms=0,
        min_ages_s={task: 0.0},
        objects=tuple(PlannedObject(task, key, 1, 0, "old") for key in keys),
    )


@pytest.mark.parametrize(
    ("count", "words"),
    [(1, "again: {0}; nothing"), (3, "again: {0}, {1}, {2}; n"), (5, "again: {0}, {1}, {2} and 2 more;")],
)
def test_planned_objects_that_are_needed_again_are_named(count: int, words: str) -> None:
    async def main() -> None:
        world = World()
        keys = [wal_key("db", number) for number in range(1, 7)]
        for key in keys:
            await world.store.put(key, b"x")
        database = world.collector().database
        fresh = a_plan(*keys[count:], manifest_id=4)
        await require_still_deletable(fresh, fresh, database)
        with pytest.raises(InvalidDeletion, match=r"manifest 3, now 4") as caught:
            await require_still_deletable(a_plan(*keys), fresh, database)
        assert words.format(*keys) in str(caught.value)

    run(main)


def test_planned_objects_that_are_gone_are_no_obstacle() -> None:
    async def main() -> None:
        world = World()
        database = world.collector().database
        await require_still_deletable(a_plan(wal_key("db", 1)), a_plan(), database)
        await require_still_deletable(a_plan("p@1", task=Task.DETACH), a_plan(task=Task.DETACH), database)
        with pytest.raises(InvalidDeletion, match="the plan is of memory:///other, not of memory:///db"):
            await require_still_deletable(a_plan(database="memory:///other"), a_plan(), database)

    run(main)


@pytest.mark.parametrize(
    "name", [manifest_key("db", 7), compactions_key("db", 7), wal_key("db", 7)], ids=["manifest", "compactions", "wal"]
)
def test_staged_objects_exist_for_the_task_of_temporaries_only(name: str) -> None:
    """The other tasks see what the two-phase mode lists; there a staged object is none."""

    async def main() -> None:
        world = World()
        place = Place(world.clock)
        key = staged_key(name, str(ulid(1)), "0" * 64)
        await place.objects.put(key, b"x")
        database = GcDatabase.at(place.process(), "db", world.env, world.metrics, ProtocolOptions())
        tasks = [task for task in Task if task is not Task.DETACH]
        assert [(task, found) for task in tasks async for found in database.existing(task, {key})] == [
            (Task.STAGED, key)
        ]

    run(main)


@pytest.mark.parametrize(
    ("task", "key"),
    [
        (Task.MANIFEST, manifest_key("db", 1)),
        (Task.COMPACTIONS, compactions_key("db", 1)),
        (Task.COMPACTIONS, compaction_record_key("db", ulid(1))),
        (Task.COMPACTED, sst_key("db", ulid(1))),
        (Task.WAL, wal_key("db", 1)),
        (Task.WAL_FENCE, wal_key("db", 1)),
        (Task.STAGED, f"{manifest_key('db', 1)}.tmp"),
        (Task.STAGED, f"{compactions_key('db', 1)}.tmp"),
        (Task.STAGED, f"{wal_key('db', 1)}.tmp"),
    ],
)
@pytest.mark.parametrize("has_own_wal_store", [False, True])
def test_objects_of_each_task_are_found_where_they_are(task: Task, key: str, has_own_wal_store: bool) -> None:
    async def main() -> None:
        world = World()
        wal_store = MemoryStore() if has_own_wal_store else world.store
        database = world.collector(wal_store=wal_store).database
        holder = wal_store if "/wal/" in key else world.store
        await holder.put(key, b"x")
        await holder.put(f"{key}.other", b"x")
        assert [found async for found in database.existing(task, {key, "db/elsewhere"})] == [key]
        await holder.delete(key)
        assert [found async for found in database.existing(task, {key})] == []

    run(main)
