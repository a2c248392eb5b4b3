"""Databases whose manifests have version 1, and what needs version 2 (docs/reference/format.md 4)."""

from typing import Any

import pytest

import shale
from shale.engine.options import FlushType
from shale.env import Env
from shale.errors import InvalidRequestError, ManifestNeedsVersion2
from shale.format.names import manifest_key
from shale.format.sst.filter_policy import FixedPrefix
from shale.protocol.manifest_store import ManifestStore
from shale.store.memory import MemoryStore
from shale.store.retry import RetryingStore
from tests.unit.store.two_phase.plain_store import Place

pytestmark = pytest.mark.anyio
NEEDS_2: dict[str, Any] = {
    "parallel": {"max_parallel_writes": 4},
    "segments": {"segment_extractor": FixedPrefix("fixed2", 2)},
}


async def versions(store: MemoryStore, path: str = "db") -> list[int]:
    """Return the version of each manifest, oldest first."""
    found: list[bytes] = []
    while (result := await store.get(manifest_key(path, len(found) + 1))) is not None:
        found.append(bytes(result.data[:2]))
    return [int.from_bytes(data, "big") for data in found]


async def test_every_process_writes_the_version_that_it_is_told() -> None:
    store = MemoryStore()
    options: dict[str, Any] = {"store": store, "manifest_write_version": 1}
    async with shale.Db.open("db", **options) as db:
        await db.put(b"k", b"v")
        await db.flush()
        made = await db.checkpoint()
        async with shale.DbReader.open("db", **options) as reader:
            assert await reader.get(b"k") == b"v"
    async with shale.Admin("db", **options) as admin:
        await admin.checkpoints.create(name="admin")
    await shale.Db.refresh_checkpoint("db", made.id, "1h", **options)
    assert await shale.Db.delete_checkpoint("db", made.id, **options)
    async with shale.Admin("copy", **options) as admin:
        await admin.clones.create("db")
    await shale.Db.destroy("db", soft=True, **options)
    assert len(await versions(store)) > 8
    assert {*await versions(store), *await versions(store, "copy")} == {1}


async def test_the_version_changes_with_each_writer_and_rows_stay() -> None:
    store = MemoryStore()
    for number, version in enumerate((2, 1, 2, 1, 1, 2)):
        async with shale.Db.open("db", store=store, manifest_write_version=version) as db:
            assert [row.key async for row in db.scan()] == [b"%d" % earlier for earlier in range(number)]
            await db.put(b"%d" % number, b"v")
            await db.flush(FlushType.MEMTABLE)
            assert (await versions(store))[-1] == version
    newest = (await ManifestStore(store, "db", Env.system()).read_latest()).value
    assert len(newest.tree.l0) == 6


@pytest.mark.parametrize("needs_2", NEEDS_2)
async def test_a_new_database_that_needs_version_2_is_not_created(needs_2: str) -> None:
    store = MemoryStore()
    with pytest.raises(ManifestNeedsVersion2, match=r"set manifest\.write_version=2"):
        await shale.Db.open("db", store=store, manifest_write_version=1, **NEEDS_2[needs_2])
    assert not store.objects


@pytest.mark.parametrize("needs_2", NEEDS_2)
async def test_an_existing_database_that_needs_version_2_keeps_its_writer(needs_2: str) -> None:
    store = MemoryStore()
    async with shale.Db.open("db", store=store, **NEEDS_2[needs_2]) as db:
        await db.put(b"key", b"v")
        await db.flush()
        before = set(store.objects)
        with pytest.raises(ManifestNeedsVersion2):
            await shale.Db.open("db", store=store, manifest_write_version=1, **NEEDS_2[needs_2])
        async with shale.Admin("db", store=store, manifest_write_version=1) as admin:
            with pytest.raises(ManifestNeedsVersion2):
                await admin.checkpoints.create()
        assert set(store.objects) == before
        await db.put(b"kez", b"v")
        await db.flush()


async def test_a_clone_that_needs_version_2_writes_nothing() -> None:
    store = MemoryStore()
    async with shale.Db.open("db", store=store, segment_extractor=FixedPrefix("fixed2", 2)) as db:
        await db.put(b"key", b"v")
        await db.flush()
    before = set(store.objects)
    async with shale.Admin("copy", store=store, manifest_write_version=1) as admin:
        with pytest.raises(ManifestNeedsVersion2):
            await admin.clones.create("db")
    assert set(store.objects) == before


async def test_two_phase_creates_need_version_2() -> None:
    place = Place()
    store = RetryingStore(place.process(), Env.system())
    with pytest.raises(ManifestNeedsVersion2, match="cas=two-phase"):
        await shale.Db.open("db", store=store, manifest_write_version=1)
    assert await store.list("") == []


async def test_other_versions_are_refused() -> None:
    unknown: Any = 3
    with pytest.raises(InvalidRequestError, match="manifest_write_version: 3 is unknown: choose 1 or 2"):
        await shale.Db.open("db", store=MemoryStore(), manifest_write_version=unknown)
