"""Records of compactions are deleted with the compactions files: a week after their last change."""

import random

import pytest

from shale.compaction.records import CompactionRecord, encode_record
from shale.env import Env, InlineCpu
from shale.format.manifest import encode_manifest
from shale.format.names import compaction_record_key, compactions_key, manifest_key
from shale.gc.collector import Collector
from shale.gc.destroy_plan import objects_to_delete
from shale.gc.options import GcOptions, Task, TaskOptions
from shale.protocol.compactions_store import CompactionsStore
from shale.store.memory import MemoryStore
from shale.types import CompactionStatus, Manifest
from tests.unit.compactor.harness import START_MS, ManualClock
from tests.unit.compactor.values import entry, spec, ulid

pytestmark = pytest.mark.anyio
DAY_S = 86_400
RUNNING, ENDED, FOREIGN = (ulid(START_MS + number) for number in range(3))


@pytest.fixture
def anyio_backend():
    return "asyncio"


async def database():
    clock = ManualClock()
    store = MemoryStore(clock)
    env = Env(clock, random.Random(1), InlineCpu())
    await store.put(manifest_key("db", 1), encode_manifest(Manifest()))
    compactions = await CompactionsStore(store, "db", env).load_or_create()
    running = entry(START_MS, spec((1,), to=0), CompactionStatus.RUNNING)
    await compactions.apply(lambda current: type(current.value)(entries=(running,)))
    for job in (RUNNING, ENDED):
        await store.put(compaction_record_key("db", job), encode_record(CompactionRecord(id=job)))
    await store.put("db/compaction_records/readme.txt", b"not ours")
    return clock, store, Collector(store, "db", env, GcOptions(compactions=TaskOptions(min_age_s=0)))


async def left(store):
    return {meta.key.rpartition("/")[2] for meta in await store.list("db/compaction_records/")}


async def test_a_record_outlives_the_versions_of_the_file():
    clock, store, collector = await database()
    clock.advance(7 * DAY_S - 1)
    await collector.sweep(Task.COMPACTIONS)
    assert [meta.key for meta in await store.list("db/compactions/")] == [compactions_key("db", 2)]
    assert left_ids(await left(store)) == {str(RUNNING), str(ENDED)}


def left_ids(names):
    return {name.removesuffix(".json") for name in names if name.endswith(".json")}


async def test_an_old_record_is_deleted_once_its_compaction_has_ended():
    clock, store, collector = await database()
    clock.advance(7 * DAY_S + 1)
    state = collector.states[Task.COMPACTIONS]
    await collector.sweep(Task.COMPACTIONS)
    assert await left(store) == {f"{RUNNING}.json", "readme.txt"}, "the job of the other one still runs"
    assert state.progress.deleted == 2, "a version and a record"


async def test_old_records_are_found_after_a_page_of_young_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shale.store.memory.LIST_PAGE", 1)
    clock, store, collector = await database()
    clock.advance(7 * DAY_S + 1)
    young = ulid(START_MS - 1)
    await store.put(compaction_record_key("db", young), encode_record(CompactionRecord(id=young)))
    await collector.sweep(Task.COMPACTIONS)
    assert left_ids(await left(store)) == {str(young), str(RUNNING)}


async def test_a_dry_run_deletes_no_record():
    clock, store, collector = await database()
    clock.advance(8 * DAY_S)
    plan = await collector.plan()
    assert compaction_record_key("db", ENDED) in {each.key for each in plan.objects}
    assert len(await left(store)) == 3
    await collector.execute(plan)
    assert await left(store) == {f"{RUNNING}.json", "readme.txt"}


async def test_a_destroy_deletes_records():
    _, store, _ = await database()
    named = {each.key: each.stage.namespace for each in objects_to_delete("db", await store.list("db/"))}
    assert named[compaction_record_key("db", ENDED)] == "compaction_records"
