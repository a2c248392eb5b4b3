"""Bounded memory of a collector: ids and versions in columns, plans during a listing, databases found by name."""

import logging
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

import anyio
import pytest

from shale.admin.discovery import databases_below
from shale.env import Env
from shale.errors import InvalidDeletion, InvalidRequestError, ShaleError
from shale.format.compactions import encode_compactions
from shale.format.manifest import encode_manifest
from shale.format.names import manifest_key, sst_key, wal_key
from shale.gc.collector import Collector
from shale.gc.options import GcOptions, Task, TaskOptions, options_for
from shale.gc.plan import GcPlan, PlannedObject
from shale.gc.ulid_set import UlidSet
from shale.protocol.versioned import VersionList, VersionMeta
from shale.store.memory import MemoryStore
from shale.store.port import ObjectMeta
from shale.types import Compaction, Compactions, CompactionStatus, Manifest, RunId, TieredSpec, Ulid, WalId
from tests.unit.gc.values import tree

pytestmark = pytest.mark.anyio
QUICK = TaskOptions(min_age_s=0)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def test_a_set_of_ids_is_a_set() -> None:
    chance = random.Random(1)
    ids = [chance.getrandbits(128) for _ in range(300)] + [0, 2**128 - 1, 2**64, 2**64 - 1, 2**64 + 1]
    found = UlidSet(ids[:100])
    found.update(ids[50:])
    found.update([])
    assert list(found) == sorted(set(ids))
    assert len(found) == len(set(ids))
    assert all(each in found for each in ids)
    assert not any(each ^ 1 in found for each in set(ids) - {2**64, 2**64 + 1, 2**64 - 1, 0})
    assert "x" not in found


def test_a_list_of_versions_is_a_list() -> None:
    versions = [VersionMeta(number, -number, number * 2) for number in range(1, 9)]
    listed = VersionList(versions)
    assert list(listed) == versions
    assert listed[-1] == versions[-1]
    assert listed[2:5] == versions[2:5]
    assert list(listed.where(lambda version: version.id % 2 == 0)) == versions[1::2]
    assert (len(listed), bool(VersionList())) == (8, False)


def test_a_plan_survives_its_json() -> None:
    objects = (
        PlannedObject(Task.MANIFEST, "db/manifest/1", 10, 3 * 3_600_000, "unreferenced", 1204),
        PlannedObject(Task.DETACH, "parent@id", 0, 0, "a parent that no version reads"),
    )
    plan = GcPlan(
        database="memory:///db",
        manifest_id=7,
        compactions_id=None,
        made_at_ms=1,
        min_ages_s={Task.MANIFEST: 5.0, Task.DETACH: 300.0},
        objects=objects,
    )
    data = plan.as_json()
    assert GcPlan.from_json(data) == plan
    assert [each["reason"] for each in data["objects"]] == [
        "unreferenced, 3 h old, boundary 1204",
        "a parent that no version reads, 0 ms old",
    ]
    for broken in ({}, [], None, {**data, "schema_version": 2}, {**data, "tasks": [{"resource": "x"}]}):
        with pytest.raises(InvalidRequestError):
            GcPlan.from_json(broken)


def test_options_of_a_plan_refuse_young_fences() -> None:
    assert options_for({Task.WAL_FENCE: None}).enabled == (Task.WAL_FENCE,)
    with pytest.raises(InvalidRequestError, match="7 days"):
        options_for({Task.WAL_FENCE: 3600})


S = TypeVar("S", bound=MemoryStore)


async def planted(*, ssts: int = 5, store: S | None = None) -> tuple[S, list[str]]:
    """A database with one referenced SST and the given number of unneeded ones; return their keys."""
    store = store if store is not None else cast("S", MemoryStore())
    latest = Manifest(tree=tree(l0=(10_000,)), replay_after_wal_id=WalId(3), next_wal_sst_id=WalId(4))
    await store.put(manifest_key("db", 1), encode_manifest(Manifest()))
    await store.put(manifest_key("db", 2), encode_manifest(latest))
    job = Compaction(
        id=Ulid.from_parts(10_000, 0), spec=TieredSpec(destination=RunId(0)), status=CompactionStatus.COMPLETED
    )
    await store.put("db/compactions/00000000000000000001.compactions", encode_compactions(Compactions(entries=(job,))))
    await store.put(sst_key("db", Ulid.from_parts(10_000, 0)), b"used")
    keys = [sst_key("db", Ulid.from_parts(1 + number, 7)) for number in range(ssts)]
    for key in keys:
        await store.put(key, b"garbage")
    for number in (1, 2, 3):
        await store.put(wal_key("db", number), b"rows")
    await anyio.sleep(0.01)
    return store, keys


async def test_a_plan_writes_nothing_and_is_what_a_pass_does() -> None:
    store, garbage = await planted()
    collector = Collector(store, "db", Env.system(), GcOptions(manifest=QUICK, wal=QUICK, compacted=QUICK))
    before = await store.list("")
    plan = await collector.plan()
    assert await store.list("") == before
    assert plan.keys(Task.COMPACTED) == set(garbage)
    assert plan.keys(Task.WAL) == {wal_key("db", 1), wal_key("db", 2)}
    assert plan.keys(Task.MANIFEST) == {manifest_key("db", 1)}
    assert plan.size == sum(meta.size for meta in before if meta.key in {each.key for each in plan.objects})
    await collector.run_once()
    left = {meta.key for meta in await store.list("")}
    assert left == {meta.key for meta in before} - {each.key for each in plan.objects} | {"db/gc/manifest.boundary"}


async def test_of_a_saved_plan_only_what_it_names_goes() -> None:
    store, garbage = await planted()
    collector = Collector(store, "db", Env.system(), GcOptions(compacted=QUICK))
    plan = await collector.plan()
    later = sst_key("db", Ulid.from_parts(100, 1))
    await store.put(later, b"garbage too")
    await store.delete(garbage[0])
    done = await collector.execute(plan)
    assert done[Task.COMPACTED].deleted == len(garbage) - 1
    assert {meta.key for meta in await store.list("db/compacted/")} > {later}


async def test_a_saved_plan_is_refused_as_a_whole() -> None:
    """The newest manifest references an SST of the plan again."""
    store, garbage = await planted()
    collector = Collector(store, "db", Env.system(), GcOptions(compacted=QUICK))
    plan = await collector.plan()
    await collector.database.manifests.commit(2, Manifest(tree=tree(l0=(10_000,), runs=(3,))))
    used = sst_key("db", Ulid.from_parts(3, 0))
    await store.put(used, b"used")
    named = replace(plan, objects=(*plan.objects, PlannedObject(Task.COMPACTED, used, 4, 0, "unreferenced")))
    with pytest.raises(InvalidDeletion, match=used):
        await collector.execute(named)
    assert {meta.key for meta in await store.list("db/compacted/")} > set(garbage)
    elsewhere = Collector(store, "other", Env.system(), GcOptions(compacted=QUICK))
    await store.put(manifest_key("other", 1), encode_manifest(Manifest()))
    with pytest.raises(InvalidDeletion, match=r"not of memory:///other"):
        await elsewhere.execute(plan)


@pytest.mark.parametrize(("dry_run", "event"), [(True, "gc.plan"), (False, "gc.delete")])
async def test_every_object_is_logged_at_debug_level(
    caplog: pytest.LogCaptureFixture, dry_run: bool, event: str
) -> None:
    """One line per pass, and at debug level one per object, with its size and the reason."""
    store, garbage = await planted()
    task = TaskOptions(min_age_s=0, dry_run=dry_run)
    options = GcOptions(manifest=None, wal=None, compactions=None, detach=None, compacted=task)
    with caplog.at_level(logging.DEBUG, "shale"):
        await Collector(store, "db", Env.system(), options).run_once()
    lines = [record.msg for record in caplog.records if isinstance(record.msg, dict) and record.msg["event"] == event]
    told = {line["object"]: line for line in lines if "object" in line}
    assert sorted(told) == sorted(garbage)
    assert all(line["bytes"] == 7 and line["reason"].startswith("unreferenced, ") for line in told.values())
    assert [line["count"] for line in lines if "object" not in line] == [len(garbage)]


class CountedStore(MemoryStore):
    """A store that counts head requests, and the number of concurrent delete requests."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0
        self.deleting = 0
        self.deleting_max = 0

    async def head(self, key: str) -> ObjectMeta | None:
        self.looks += 1
        return await super().head(key)

    async def delete_many(self, keys: Sequence[str]) -> Mapping[str, ShaleError]:
        self.deleting += 1
        self.deleting_max = max(self.deleting, self.deleting_max)
        await anyio.sleep(0.001)
        self.deleting -= 1
        return await super().delete_many(keys)


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_no_more_requests_to_delete_than_allowed(concurrency: int) -> None:
    """A page has as many objects as four requests."""
    store, garbage = await planted(ssts=2_000, store=CountedStore())
    collector = Collector(store, "db", Env.system(), GcOptions(compacted=QUICK, delete_concurrency=concurrency))
    await collector.run_once()
    assert collector.states[Task.COMPACTED].progress.deleted == len(garbage)
    assert store.deleting_max == concurrency


class SlowDeleteStore(MemoryStore):
    """A store with slow deletions."""

    seconds = 0.1

    async def delete_many(self, keys: Sequence[str]) -> Mapping[str, ShaleError]:
        await anyio.sleep(self.seconds)
        return await super().delete_many(keys)


async def test_a_slow_deletion_is_no_failed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shale.gc.passes.STOP_S", 0.01)
    store, garbage = await planted(store=SlowDeleteStore())
    collector = Collector(store, "db", Env.system(), GcOptions(compacted=QUICK))
    await collector.run_once()
    progress = collector.states[Task.COMPACTED].progress
    assert (progress.deleted, progress.failed) == (len(garbage), 0)


@pytest.mark.parametrize(("stop_s", "seconds", "is_counted"), [(20.0, 0.2, True), (0.1, 60.0, False)])
async def test_who_stops_finishes_a_deletion_that_does_not_take_for_ever(
    monkeypatch: pytest.MonkeyPatch, stop_s: float, seconds: float, is_counted: bool
) -> None:
    monkeypatch.setattr("shale.gc.passes.STOP_S", stop_s)
    monkeypatch.setattr(SlowDeleteStore, "seconds", seconds)
    store, garbage = await planted(store=SlowDeleteStore())
    collector = Collector(store, "db", Env.system(), GcOptions(manifest=None, wal=None, compacted=QUICK))
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(collector.run)
            while not collector.states[Task.COMPACTED].progress.planned:
                await anyio.lowlevel.checkpoint()
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
    assert collector.states[Task.COMPACTED].progress.deleted == (len(garbage) if is_counted else 0)


async def test_what_is_gone_already_costs_a_saved_plan_no_request_each() -> None:
    """An interrupted run, or another collector, has deleted most of the objects."""
    store, garbage = await planted(ssts=1_500, store=CountedStore())
    collector = Collector(store, "db", Env.system(), GcOptions(compacted=QUICK))
    plan = await collector.plan()
    for key in garbage[:-2]:
        await store.delete(key)
    store.looks = 0
    done = await collector.execute(plan)
    assert done[Task.COMPACTED].deleted == 2
    assert store.looks < 10


@pytest.mark.fault("F5.14")
async def test_a_filter_can_only_keep(caplog: pytest.LogCaptureFixture) -> None:
    """Objects that it adds are ignored, with a warning."""
    store, garbage = await planted()
    used = sst_key("db", Ulid.from_parts(10_000, 0))

    async def choose(task: Task, keys: Sequence[str]) -> Iterable[str]:
        assert task is Task.COMPACTED
        return [*keys[1:], used]

    options = GcOptions(manifest=None, wal=None, compactions=None, detach=None, compacted=QUICK, filter=choose)
    await Collector(store, "db", Env.system(), options).run_once()
    (told,) = (record.msg for record in caplog.records if "gc.filter.unknown_keys" in str(record.msg))
    assert isinstance(told, dict)
    assert told["count"] == 1
    assert [meta.key for meta in await store.list("db/compacted/")] == [garbage[0], used]


async def test_databases_are_found_without_listing_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database has a manifest directly below the prefix; another one with a similar name is not part of it."""
    store = MemoryStore()
    for root in ("t/a", "t/a-b", "t/a0", "t/z", "other/x", "t/deep/er"):
        await store.put(manifest_key(root, 1), b"")
    await store.put(wal_key("t/nothing", 1), b"")
    await store.put("t/file", b"")
    await store.put("t/a.txt", b"")
    for number in range(1_500):
        await store.put(f"t/a-{number:04}.log", b"")
    asked = 0

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal asked
        asked += 1
        return MemoryStore.list_pages(store, *args, **kwargs)

    monkeypatch.setattr(store, "list_pages", counted)
    found = [root async for root in databases_below(store, "t")]
    assert asked < 20, "files that lie there cost a request for a thousand"
    assert sorted(found) == ["t/a", "t/a-b", "t/a0", "t/z"]
    assert [root async for root in databases_below(store, "")] == []
    assert [root async for root in databases_below(store, "other")] == ["other/x"]
