"""The objects of attempts: who writes the range of a clone, and when they are deleted."""

from typing import Any
from uuid import UUID

import pytest

from shale.admin.clones import source
from shale.clones.attempt_range import AttemptRanges, attempt_of
from shale.errors import AccessDenied, AlreadyExists, InvalidDbState
from shale.format.names import attempt_range_key, gc_prefix, manifest_key, visible_range_key
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.visible_range import decode_visible_range, encode_visible_range, read_visible_range
from shale.store.memory import MemoryStore
from shale.store.port import CREATE, ETag, ObjectMeta
from shale.types import EVERYTHING, CasMode, KeyRange, Manifest
from tests.unit.backup.databases import admin, environment, rows, write
from tests.unit.clones.values import external, uuid

LEFT, RIGHT = KeyRange.half_open(None, b"m"), KeyRange.half_open(b"m", None)
OLD, OWN, OTHER = uuid(1), uuid(2), uuid(3)
KEY = visible_range_key("clone")

pytestmark = pytest.mark.anyio


class TwoPhase(MemoryStore):
    """A store of the two-phase mode, as far as these objects matter."""

    cas = CasMode.TWO_PHASE


class WithoutDeletes(MemoryStore):
    """A store whose policy refuses deletes and listings of the objects of attempts."""

    async def delete(self, key: str) -> None:
        raise AccessDenied(key)

    async def list(self, prefix: str) -> list[ObjectMeta]:
        if prefix == gc_prefix("clone"):
            raise AccessDenied(prefix)
        return await super().list(prefix)


class LostAnswer(MemoryStore):
    """A store that reports a conflict for the first manifest of the clone, which it has written."""

    is_lost = False

    async def put(self, key: str, *args: Any, **options: Any) -> ETag | None:
        etag = await super().put(key, *args, **options)
        if key == manifest_key("clone", 1) and not self.is_lost:
            self.is_lost = True
            raise AlreadyExists(key)
        return etag


async def names(store: MemoryStore) -> list[str]:
    return [meta.key for meta in await store.list(gc_prefix("clone"))]


async def create(store: MemoryStore, keys: KeyRange = LEFT) -> None:
    async with admin(store, "clone") as made:
        await made.clones.create(source("db", start=keys.first_key, end=keys.end_key))


async def half_built(keys: KeyRange) -> tuple[MemoryStore, UUID]:
    """Return a store with a clone that an earlier release, which stored no object for an attempt, left half built."""
    store = MemoryStore(url="memory://main/")
    await write(store, {"b": "1", "n": "2"})
    await create(store, keys)
    first = await ManifestStore(store, "clone", environment()).read(1)
    assert first is not None
    attempt = attempt_of(first)
    assert attempt is not None
    await store.delete(manifest_key("clone", 2))
    return store, attempt


def test_the_id_of_an_attempt_is_in_its_manifest() -> None:
    entries = (external("p", 5, 1), external("q", 6, 2))
    assert attempt_of(Manifest(external_dbs=entries)) == uuid(5)
    assert attempt_of(Manifest()) is None


async def test_a_range_that_is_there_is_replaced_only_after_the_manifest() -> None:
    store = MemoryStore()
    await store.put(KEY, encode_visible_range(RIGHT, OLD))
    ranges = AttemptRanges(store, "clone")
    data = await ranges.store(OWN, LEFT)
    assert data == await ranges.read(OWN) == encode_visible_range(LEFT, OWN)
    assert await read_visible_range(store, "clone") == RIGHT
    await ranges.publish(data)
    assert bytes(store.objects[KEY].data) == data


async def test_a_clone_that_another_release_completes_has_a_range() -> None:
    store = MemoryStore()
    await AttemptRanges(store, "clone").store(OWN, LEFT)
    assert await read_visible_range(store, "clone") == LEFT
    await AttemptRanges(store, "clone").store(OTHER, None)
    assert await read_visible_range(store, "clone") == LEFT


async def test_without_conditions_the_range_is_written_after_the_manifest_only() -> None:
    store = TwoPhase()
    ranges = AttemptRanges(store, "clone")
    data = await ranges.store(OWN, LEFT)
    assert await store.get(KEY) is None
    await ranges.publish(data)
    await AttemptRanges(store, "clone").store(OTHER, RIGHT)
    assert await read_visible_range(store, "clone") == LEFT


async def test_late_duplicates_of_an_earlier_attempt_change_nothing() -> None:
    store = MemoryStore()
    earlier, own = AttemptRanges(store, "clone"), AttemptRanges(store, "clone")
    late = await earlier.store(OLD, RIGHT)
    await store.delete(KEY)
    data = await own.store(OWN, LEFT)
    await own.publish(data)
    with pytest.raises(AlreadyExists):
        await store.put(KEY, late, mode=CREATE)
    await store.put(attempt_range_key("clone", OLD), late)
    assert await own.read(OWN) == data
    assert await read_visible_range(store, "clone") == LEFT


async def test_own_objects_are_deleted_but_not_those_of_others() -> None:
    store = MemoryStore()
    ranges, others = AttemptRanges(store, "clone"), AttemptRanges(store, "clone")
    for attempt in (OLD, OWN):
        await ranges.store(attempt, LEFT)
    await others.store(OTHER, RIGHT)
    await ranges.remove_own(keep=OWN)
    assert await names(store) == [KEY, attempt_range_key("clone", OWN), attempt_range_key("clone", OTHER)]
    await ranges.remove_own()
    assert await names(store) == [KEY, attempt_range_key("clone", OTHER)]


async def test_a_complete_clone_deletes_the_objects_of_all_attempts_and_nothing_else() -> None:
    store = MemoryStore()
    kept = [f"clone/gc/{name}" for name in ("manifest.boundary", "visible_range_notes")]
    for key in kept:
        await store.put(key, b"")
    ranges = AttemptRanges(store, "clone")
    await ranges.store(OWN, LEFT)
    await AttemptRanges(store, "clone").store(OTHER, RIGHT)
    await ranges.remove_all()
    assert await names(store) == sorted([KEY, *kept])


async def test_a_clone_is_complete_although_the_objects_cannot_be_deleted() -> None:
    store = WithoutDeletes(url="memory://main/")
    await write(store, {"b": "1", "n": "2"})
    await create(store)
    assert await rows(store, "clone") == {"b": "1"}
    left = [key for key in store.objects if key.startswith(f"{KEY}_")]
    assert len(left) == 1
    async with admin(store, "clone") as made:
        report = await made.verify()
        assert (report.findings, report.orphan_totals) == ((), {})


async def test_a_destroyed_clone_leaves_no_object_of_an_attempt() -> None:
    store = MemoryStore(url="memory://main/")
    await write(store, {"b": "1", "n": "2"})
    await create(store)
    await store.put(attempt_range_key("clone", OTHER), encode_visible_range(RIGHT, OTHER))
    async with admin(store, "clone") as made:
        await made.destroy(confirm=True)
    assert await store.list("clone/") == []


@pytest.mark.parametrize("has_range", [True, False], ids=["with a range", "without a range"])
async def test_a_clone_that_an_earlier_release_began_is_completed(has_range: bool) -> None:
    store, _ = await half_built(EVERYTHING)
    if has_range:
        with pytest.raises(InvalidDbState, match="the clone at clone shows"):
            await create(store, LEFT)
    else:
        await store.delete(KEY)
    await create(store, EVERYTHING)
    assert await rows(store, "clone") == {"b": "1", "n": "2"}
    assert await names(store) == ([KEY] if has_range else [])


async def test_the_object_of_the_attempt_counts_more_than_the_range_of_another_one() -> None:
    store, attempt = await half_built(LEFT)
    stored = encode_visible_range(LEFT, attempt)
    await store.put(attempt_range_key("clone", attempt), stored)
    await store.put(KEY, encode_visible_range(RIGHT, OTHER))
    with pytest.raises(InvalidDbState, match="the clone at clone shows"):
        await create(store, RIGHT)
    await create(store, LEFT)
    assert bytes(store.objects[KEY].data) == stored
    assert await rows(store, "clone") == {"b": "1"}


async def test_an_attempt_whose_answer_was_lost_has_its_range() -> None:
    store = LostAnswer(url="memory://main/", supports_attributes=False)
    await write(store, {"b": "1", "n": "2"})
    await store.put(KEY, encode_visible_range(RIGHT, OTHER))
    await create(store, LEFT)
    assert store.is_lost
    assert await rows(store, "clone") == {"b": "1"}
    assert await names(store) == [KEY]


async def test_a_union_of_databases_without_ssts_has_a_range() -> None:
    store = MemoryStore(url="memory://main/")
    for path in ("p", "q"):
        await write(store, {}, path)
    async with admin(store, "clone") as made:
        await made.clones.create(source("p", end=b"c"), source("q", start=b"c", end=b"m"))
    assert decode_visible_range(store.objects[KEY].data, path=KEY) == LEFT
    assert await names(store) == [KEY]
