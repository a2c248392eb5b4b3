"""A WAL without its first file is refused only if the manifest proves that rows are missing."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import anyio
import pytest

import shale
from shale.errors import InvalidDbState, WalTruncated
from shale.format.manifest import decode_manifest, encode_manifest
from shale.format.names import manifest_key, wal_key
from shale.protocol.wal_completeness import WalGap
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


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


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
        with pytest.raises(WalTruncated, match=rf"{missing}.*write an empty file in its place"):
            await shale.Db.open("db", store=store)
        assert await objects(store) == before
        with pytest.raises(WalTruncated, match=missing):
            await scanned(store, **MODES[mode])
        assert set(await scanned(store, **MODES[mode], allow_wal_gap=True)) == {b"0001", b"0003"}
        # An empty file in its place is how an operator says that its rows are given up.
        await store.put(missing, b"")
        assert set(await scanned(store, **MODES[mode])) == {b"0001", b"0003"}

    run(scenario)


async def many(store: MemoryStore, count: int = 14) -> Any:
    """Create a closed database with a row in each of ``count`` WAL files after the fence; return its manifest."""
    db = await shale.Db.open("db", store=store, flush_interval=0)
    for number in range(count):
        await (await db.put(b"%02d" % number, b"v")).durable()
    await db.close(flush="wal")
    return db.status.manifest


@pytest.mark.parametrize("mode", [*MODES, "checkpoint"])
def test_every_lost_file_that_the_manifest_knows_is_an_error(mode: str) -> None:
    """Whatever the search for the end of the WAL passes over or stops at."""

    async def scenario(store: MemoryStore) -> None:
        manifest = await many(store)
        options = dict(MODES.get(mode, {}))
        if mode == "checkpoint":
            async with shale.Admin("db", store=store) as admin:
                options["checkpoint"] = (await admin.checkpoints.create()).id
        for lost in range(2, manifest.next_wal_sst_id):
            data = await store.get(wal_key("db", lost))
            assert data is not None
            await store.delete(wal_key("db", lost))
            with pytest.raises(WalTruncated, match=f"WAL file {lost} is needed") as raised:
                await scanned(store, **options)
            assert (raised.value.id, raised.value.path) == (lost, wal_key("db", lost))
            async with shale.DbReader.open("db", store=store, **options, allow_wal_gap=True) as reader:
                assert reader.wal_gaps == (WalGap(lost, lost),)
                keys = [row.key async for row in reader.scan()]
            assert keys == [b"%02d" % number for number in range(14) if number != lost - 2]
            await store.put(wal_key("db", lost), bytes(data.data))
        assert len(await scanned(store, **options)) == 14

    run(scenario)


def test_a_writer_that_lacks_a_file_before_others_writes_nothing() -> None:
    """So a live writer keeps its epoch."""

    async def scenario(store: MemoryStore) -> None:
        manifest = await many(store)
        for lost in range(2, manifest.next_wal_sst_id - 1):
            data = await store.get(wal_key("db", lost))
            assert data is not None
            await store.delete(wal_key("db", lost))
            before = await objects(store)
            with pytest.raises((InvalidDbState, WalTruncated), match=wal_key("db", lost)):
                await shale.Db.open("db", store=store)
            assert await objects(store) == before
            await store.put(wal_key("db", lost), bytes(data.data))

    run(scenario)


def test_all_lost_files_are_named(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(store: MemoryStore) -> None:
        await many(store)
        for lost in (4, 5, 9, 14, 15):
            await store.delete(wal_key("db", lost))
        with pytest.raises(WalTruncated, match=r"WAL files 4 to 5, 9, 14 to 15 are needed.*--allow-wal-gap"):
            await scanned(store)
        assert len(await scanned(store, allow_wal_gap=True)) == 9
        skipped = [line for line in logged(caplog) if "wal.gap_skipped" in line]
        assert len(skipped) == 3
        assert "'first_wal_id': 14, 'last_wal_id': 15" in skipped[-1]

    run(scenario)


def test_a_reader_that_follows_ends_at_a_lost_file() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with shale.Db.open("db", store=store, flush_interval=0) as db:
            await (await db.put(b"1", b"v")).durable()
            async with (
                shale.DbReader.open("db", store=store, manifest_poll_interval="10ms") as reader,
                shale.DbReader.open("db", store=store, follow_latest=True, allow_wal_gap=True) as tolerant,
            ):
                for key in (b"2", b"3"):
                    await (await db.put(key, b"v")).durable()
                await store.delete(wal_key("db", 3))
                with anyio.fail_after(60):
                    # The search ends before the hole; only a manifest that knows of the later file proves the loss.
                    await db.close(flush="wal")
                    failed = await reader.failed()
                assert isinstance(failed, WalTruncated)
                with pytest.raises(WalTruncated):
                    await reader.get(b"1")
                await tolerant.refresh()
                assert [row.key async for row in tolerant.scan()] == [b"1", b"3"]

    run(scenario)


@pytest.mark.parametrize("mode", MODES)
def test_a_frontier_that_ran_ahead_of_a_whole_log_is_no_loss_for_a_writer(
    mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Releases before 0.17 left such a frontier after a crash: they counted files before writing them."""

    async def scenario(store: MemoryStore) -> None:
        manifest = await written(store)
        newest = max(key for key in await objects(store) if "/manifest/" in key)
        ahead = replace(manifest, next_wal_sst_id=manifest.next_wal_sst_id + 3)
        await store.put(newest, encode_manifest(ahead))
        with pytest.raises(WalTruncated, match=r"release before 0\.17 crashed"):
            await scanned(store, **MODES[mode])
        assert await scanned(store, **MODES[mode], allow_wal_gap=True) == ROWS
        for attempt in range(4):
            caplog.clear()
            async with shale.Db.open("db", store=store) as db:
                assert [row.key async for row in db.scan()] == list(ROWS)
            assert any("wal.ends_early" in line for line in logged(caplog)) == (attempt < 3), attempt
        # The log has caught up with the manifest.
        assert await scanned(store, **MODES[mode]) == ROWS

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
