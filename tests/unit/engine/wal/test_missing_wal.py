"""A WAL without its first file is refused only if the manifest proves that rows are missing."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import anyio
import pytest

import shale
from shale.errors import InvalidDbState
from shale.format.manifest import decode_manifest, encode_manifest
from shale.format.names import manifest_key, wal_key
from shale.store.memory import MemoryStore

ROWS = {b"0001": b"in L0", b"0002": b"in the log", b"0003": b"in the log, too"}
MODES = {"managed": {}, "follow_latest": {"follow_latest": True}}


def run(scenario: Callable[[MemoryStore], Awaitable[None]]) -> None:
    anyio.run(scenario, MemoryStore())


async def written(store: MemoryStore, *, wal_store: MemoryStore | None = None, flush: bool = True) -> Any:
    """Create a closed database with two files after its replay point, both recorded in its manifest."""
    db = await shale.Db.open("db", store=store, wal_store=wal_store, flush_interval=0)
    for number, (key, value) in enumerate(ROWS.items()):
        await (await db.put(key, value)).durable()
        if flush and not number:
            await db.flush("memtable")
    await db.close(flush="wal")
    manifest = db.status.manifest
    assert manifest.next_wal_sst_id - 1 >= manifest.replay_after_wal_id + 2
    return manifest


async def objects(store: MemoryStore) -> dict[str, bytes]:
    return {meta.key: bytes((await store.get(meta.key)).data) for meta in await store.list("")}  # type: ignore[union-attr]


async def scanned(store: MemoryStore, **options: Any) -> dict[bytes, bytes]:
    async with shale.DbReader.open("db", store=store, **options) as reader:
        return {row.key: row.value async for row in reader.scan()}


@pytest.mark.parametrize("flush", [True, False], ids=["with L0", "all in the log"])
def test_a_log_elsewhere_is_asked_for_before_anything_is_written(flush: bool) -> None:
    async def scenario(store: MemoryStore) -> None:
        apart = MemoryStore()
        manifest = await written(store, wal_store=apart, flush=flush)
        before = await objects(store)
        missing = wal_key("db", manifest.replay_after_wal_id + 1)
        with pytest.raises(InvalidDbState, match=rf"{missing} does not exist, .*name it with wal_store"):
            await shale.Db.open("db", store=store)
        with pytest.raises(InvalidDbState, match=rf"{missing} does not exist"):
            await scanned(store, follow_latest=True)
        assert await objects(store) == before
        assert await scanned(store, follow_latest=True, wal_store=apart) == ROWS
        async with shale.Db.open("db", store=store, wal_store=apart) as db:
            assert [row.key async for row in db.scan()] == list(ROWS)

    run(scenario)


def test_a_reader_that_is_refused_leaves_no_checkpoint() -> None:
    async def scenario(store: MemoryStore) -> None:
        await written(store, wal_store=MemoryStore())
        with pytest.raises(InvalidDbState, match="wal_store"):
            await scanned(store)
        newest = max(key for key in await objects(store) if "/manifest/" in key)
        assert decode_manifest((await objects(store))[newest]).checkpoints == ()

    run(scenario)


def test_a_reader_without_wal_replay_needs_no_wal() -> None:
    async def scenario(store: MemoryStore) -> None:
        await written(store, wal_store=MemoryStore())
        assert await scanned(store, follow_latest=True, skip_wal_replay=True) == {b"0001": b"in L0"}

    run(scenario)


@pytest.mark.parametrize("mode", MODES)
def test_a_lost_file_before_others_is_named(mode: str) -> None:
    async def scenario(store: MemoryStore) -> None:
        manifest = await written(store)
        missing = wal_key("db", manifest.replay_after_wal_id + 1)
        await store.delete(missing)
        before = await objects(store)
        with pytest.raises(InvalidDbState, match=rf"{missing} does not exist.*or the file was deleted"):
            await shale.Db.open("db", store=store)
        assert await objects(store) == before
        with pytest.raises(InvalidDbState, match=missing):
            await scanned(store, **MODES[mode])
        assert await scanned(store, **MODES[mode], allow_wal_gap=True) == {b"0001": b"in L0"}
        # An empty file in its place is how an operator says that its rows are given up.
        await store.put(missing, b"")
        assert set(await scanned(store, **MODES[mode])) == {b"0001", b"0003"}

    run(scenario)


@pytest.mark.parametrize("mode", MODES)
def test_a_frontier_that_ran_ahead_of_a_whole_log_is_no_loss(mode: str) -> None:
    """Releases before 0.17 left such a frontier after a crash: they counted files before writing them."""

    async def scenario(store: MemoryStore) -> None:
        manifest = await written(store)
        newest = max(key for key in await objects(store) if "/manifest/" in key)
        ahead = replace(manifest, next_wal_sst_id=manifest.next_wal_sst_id + 3)
        await store.put(newest, encode_manifest(ahead))
        assert await scanned(store, **MODES[mode]) == ROWS
        for _ in range(2):
            async with shale.Db.open("db", store=store) as db:
                assert [row.key async for row in db.scan()] == list(ROWS)

    run(scenario)


def test_a_crash_before_the_first_fence_is_no_loss() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with shale.Db.open("db", store=store, flush_interval=0):
            pass
        for key in await objects(store):
            if key not in (manifest_key("db", 1), manifest_key("db", 2)):
                await store.delete(key)
        async with shale.Db.open("db", store=store) as db:
            assert db.status.manifest.writer_epoch == 2

    run(scenario)
