"""``DbReader`` on a store in memory: options, modes, leases, tables and refusals."""

import gc
import pickle
import tracemalloc
from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random
from typing import Any
from uuid import UUID

import anyio
import pytest

import shale
from shale.engine.db_reader import DbReader
from shale.engine.reader.options import ReaderMode, ReaderOptions
from shale.engine.wal.replay import PRELOAD_FILES_MAX
from shale.env import Env, InlineCpu, SystemClock
from shale.errors import (
    AmbiguousCheckpoint,
    CheckpointLifetimeTooShort,
    CheckpointMissing,
    ClosedError,
    InvalidCheckpointLifetime,
    InvalidDbState,
    InvalidManifestPollInterval,
    InvalidRequestError,
    LatestRecordMissing,
    WalTruncated,
)
from shale.format.manifest import decode_manifest, encode_manifest
from shale.format.names import destroyed_key, manifest_key, wal_key
from shale.protocol.checkpoints import create_checkpoint, release_checkpoints
from shale.protocol.manifest_store import ManifestStore
from shale.store.memory import MemoryStore
from shale.types import Manifest, WalId

SLOW = {"manifest_poll_interval": "1h", "checkpoint_lifetime": "3h"}


class ShiftedClock(SystemClock):
    """The machine's clock, moved by the test."""

    def __init__(self) -> None:
        self.shift_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.shift_ms


class World:
    """One store and one clock."""

    def __init__(self) -> None:
        self.clock = ShiftedClock()
        self.env = Env(self.clock, Random(1), InlineCpu())
        self.store = MemoryStore(self.clock)

    def db(self, **settings: Any) -> Any:
        return shale.Db.open("db", store=self.store, env=self.env, **{"writer_checkpoint": False, **settings})

    def reader(self, **settings: Any) -> Any:
        return DbReader.open("db", store=self.store, env=self.env, **{**SLOW, **settings})

    def manifests(self) -> ManifestStore:
        return ManifestStore(self.store, "db", self.env)

    async def latest(self) -> Manifest:
        return (await self.manifests().read_latest()).value

    async def version(self) -> int:
        return (await self.manifests().read_latest()).id


def run(test: Callable[[World], Awaitable[None]]) -> None:
    anyio.run(test, World())


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        pytest.param({"checkpoint_lifetime": "999ms"}, InvalidCheckpointLifetime, id="too short to store"),
        pytest.param({"checkpoint_lifetime": "19s"}, CheckpointLifetimeTooShort, id="lost between two polls"),
        pytest.param({"checkpoint_lifetime": "20s"}, CheckpointLifetimeTooShort, id="exactly two polls"),
        pytest.param({"manifest_poll_interval": 0}, InvalidManifestPollInterval, id="no interval"),
        pytest.param({"max_memtable_bytes": 0}, InvalidRequestError, id="no memory"),
        pytest.param({"checkpoint": " "}, InvalidRequestError, id="no name"),
        pytest.param({"checkpoint": 7}, InvalidRequestError, id="not a checkpoint"),
        pytest.param({"checkpoint": UUID(int=1), "follow_latest": True}, InvalidRequestError, id="two modes"),
        pytest.param({"pace": 3}, InvalidRequestError, id="unknown"),
    ],
)
def test_impossible_options(settings: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        DbReader.open("memory:///db", **settings)


def test_possible_options() -> None:
    assert ReaderOptions.from_keywords({"checkpoint_lifetime": "21s"}).mode is ReaderMode.MANAGED
    assert ReaderOptions.from_keywords({"checkpoint_lifetime": None}).lifetime_ms is None
    unmanaged = ReaderOptions.from_keywords({"checkpoint_lifetime": "1s", "follow_latest": True})
    assert unmanaged.mode is ReaderMode.FOLLOW_LATEST
    pinned = ReaderOptions.from_keywords({"checkpoint": "nightly", "block_cache_bytes": "1MiB"})
    assert (pinned.mode, pinned.checkpoint, pinned.block_cache_bytes) == (ReaderMode.CHECKPOINT, "nightly", 1 << 20)


def test_missing_and_incomplete_databases_are_refused() -> None:
    async def test(world: World) -> None:
        with pytest.raises(LatestRecordMissing):
            await world.reader()
        half = Manifest(initialized=False)
        await world.store.put(manifest_key("db", 1), encode_manifest(half))
        with pytest.raises(InvalidDbState, match="not initialised"):
            await world.reader()
        await world.store.put(manifest_key("db", 2), encode_manifest(replace(half, initialized=True)))
        for wanted in (UUID(int=1), str(UUID(int=1)), "nightly"):
            with pytest.raises(CheckpointMissing, match=str(wanted)):
                await world.reader(checkpoint=wanted)
        await world.store.put(destroyed_key("db"), b"{}")
        with pytest.raises(InvalidDbState, match="destroyed"):
            await world.reader()
        assert await world.version() == 2

    run(test)


def test_a_wal_in_a_store_of_its_own_has_to_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Manifests of version 1 do not name it; a read without it would silently miss the newest rows."""
    old = Manifest(wal_object_store_uri="s3://wal/")
    monkeypatch.setattr("shale.protocol.manifest_store.DECODE", lambda _data, path: old)

    async def test(world: World) -> None:
        await world.store.put(manifest_key("db", 1), encode_manifest(Manifest()))
        with pytest.raises(InvalidRequestError, match="s3://wal/"):
            await world.reader(follow_latest=True)
        async with world.reader(follow_latest=True, wal_store=MemoryStore(world.clock)) as reader:
            assert [row async for row in reader.scan()] == []

    run(test)


def test_rows_in_the_wal_are_seen_after_one_poll() -> None:
    """T5.a: no new manifest version, and T5.c: the same checkpoint."""

    async def test(world: World) -> None:
        async with world.db() as db, world.reader() as reader:
            before = (await world.version(), reader.checkpoint_id)
            await (await db.put(b"k", b"v")).durable()
            assert await reader.get(b"k") is None
            await reader.refresh()
            assert await reader.get(b"k") == b"v"
            row = await reader.get_row(b"k")
            assert row is not None
            assert (row.key, row.value, row.seq) == (b"k", b"v", 1)
            assert (await world.version(), reader.checkpoint_id) == before

    run(test)


def test_a_flush_replaces_the_checkpoint() -> None:
    """T5.b: one version by the writer and one by the reader, whose only checkpoint points at the newest."""

    async def test(world: World) -> None:
        async with world.db() as db, world.reader() as reader:
            before, first = await world.version(), reader.checkpoint_id
            await db.put(b"k", b"v")
            await db.flush("memtable")
            await reader.refresh()
            assert await world.version() == before + 2
            (entry,) = (await world.latest()).checkpoints
            assert entry.id == reader.checkpoint_id != first
            assert entry.manifest_id == reader.manifest_id == before + 2
            assert reader.memtable_count == 0

    run(test)


def test_an_idle_reader_renews_after_half_a_lifetime() -> None:
    """T5.c: nothing before, one version after, the same id with a later end."""

    async def test(world: World) -> None:
        async with world.db(), world.reader(manifest_poll_interval="1h", checkpoint_lifetime="7201s") as reader:
            before = await world.version()
            (old,) = (await world.latest()).checkpoints
            world.clock.shift_ms = 59 * 60_000
            await reader.refresh()
            assert await world.version() == before
            world.clock.shift_ms = 61 * 60_000
            await reader.refresh()
            await reader.refresh()
            assert await world.version() == before + 1
            (new,) = (await world.latest()).checkpoints
            assert new == replace(old, expire_s=new.expire_s)
            assert new.expire_s - old.expire_s in (3659, 3660, 3661)

    run(test)


def test_a_checkpoint_without_a_lifetime_never_expires_and_goes_with_its_reader() -> None:
    async def test(world: World) -> None:
        async with world.db() as db:
            async with world.reader(checkpoint_lifetime=None) as reader:
                (own,) = (await world.latest()).checkpoints
                assert (own.id, own.expire_s) == (reader.checkpoint_id, 0)
                before = await world.version()
                world.clock.shift_ms = 365 * 86_400_000
                await reader.refresh()
                assert await world.version() == before
                await db.put(b"k", b"v")
                await db.flush("memtable")
                await reader.refresh()
                (replaced,) = (await world.latest()).checkpoints
                assert (replaced.id != own.id, replaced.expire_s) == (True, 0)
            assert not (await world.latest()).checkpoints

    run(test)


def test_a_lost_lease_is_established_again() -> None:
    """T5.d; the scans of the old state end."""

    async def test(world: World) -> None:
        async with world.db() as db:
            for number in range(3):
                await db.put(b"k%d" % number, b"v")
            await db.flush("memtable")
            async with world.reader() as reader:
                lost = reader.checkpoint_id
                scan = reader.scan()
                await anext(scan)
                await release_checkpoints(await world.manifests().load(), [lost])
                await reader.refresh()
                assert reader.checkpoint_id != lost
                assert [entry.id for entry in (await world.latest()).checkpoints] == [reader.checkpoint_id]
                assert len([row async for row in reader.scan()]) == 3
                at_hand = await scan.columns()
                assert at_hand is not None
                assert len(at_hand) == 2
                with pytest.raises(CheckpointMissing):
                    await scan.columns()
        assert (await world.latest()).checkpoints == ()

    run(test)


def test_a_state_in_use_keeps_its_checkpoint() -> None:
    """The old checkpoint stays while a scan of the old state runs, and goes with the first commit after it."""

    async def test(world: World) -> None:
        async with world.db() as db, world.reader() as reader:
            for number in range(3):
                await db.put(b"k%d" % number, b"v")
                await db.flush("memtable")
            await reader.refresh()
            old = reader.checkpoint_id
            scan = reader.scan()
            await anext(scan)
            await db.put(b"k9", b"v")
            await db.flush("memtable")
            await reader.refresh()
            assert {entry.id for entry in (await world.latest()).checkpoints} == {old, reader.checkpoint_id}
            assert [row.key async for row in scan] == [b"k1", b"k2"]
            await db.put(b"k8", b"v")
            await db.flush("memtable")
            await reader.refresh()
            assert {entry.id for entry in (await world.latest()).checkpoints} == {reader.checkpoint_id}

    run(test)


def test_small_tables_are_joined_and_large_ones_are_not() -> None:
    """T5.f: 100 rows of 100 bytes in ten files with tables of 1 KiB; and one row a poll makes few tables."""

    async def test(world: World) -> None:
        async with world.db() as db:
            for number in range(100):
                await db.put(b"k%03d" % number, bytes(100))
                if number % 10 == 9:
                    await db.flush("wal")
            expected = [b"k%03d" % number for number in range(100)]
            async with world.reader(max_memtable_bytes=1024) as reader:
                assert reader.memtable_count >= 10
                assert [row.key async for row in reader.scan()] == expected
            async with world.reader() as reader:
                for number in range(100, 140):
                    await db.put(b"k%03d" % number, bytes(100))
                    await db.flush("wal")
                    await reader.refresh()
                assert reader.memtable_count <= 8
                assert len([row async for row in reader.scan()]) == 140
                assert reader.visible_seq == 140

    run(test)


def test_a_missing_wal_file_is_an_error_in_every_mode() -> None:
    """T5.e: the newest manifest still needs the file, so no collector has deleted it."""

    async def test(world: World) -> None:
        async with world.db() as db:
            for number in range(4):
                await db.put(b"k%d" % number, b"v")
                await db.flush("wal")
            await db.close("wal")
        manifest = await world.latest()
        ids = range(manifest.replay_after_wal_id + 1, manifest.next_wal_sst_id)
        checkpoint = await create_checkpoint(await world.manifests().load(), world.env, lifetime_ms=None)
        hole = next(wal_id for wal_id in ids if wal_id > ids[2])
        await world.store.delete(wal_key("db", WalId(hole)))
        for options in ({}, {"follow_latest": True}, {"checkpoint": checkpoint.id}):
            with pytest.raises(WalTruncated, match=f"WAL file {hole} is needed"):
                await world.reader(**options)
            async with world.reader(**options, allow_wal_gap=True) as reader:
                assert [row.key async for row in reader.scan()] == [
                    b"k%d" % number for number in range(4) if number != hole - ids[1]
                ]
        async with world.reader(checkpoint=checkpoint.id, skip_wal_replay=True) as reader:
            assert [row async for row in reader.scan()] == []

    run(test)


def test_a_pinned_reader_writes_nothing_and_never_moves() -> None:
    async def test(world: World) -> None:
        async with world.db() as db:
            await db.put(b"a", b"1")
            await db.flush("memtable")
            checkpoint = await create_checkpoint(await world.manifests().load(), world.env, lifetime_ms=None)
            await db.refresh()
            await db.put(b"a", b"2")
            await db.flush("memtable")
            before = await world.version()
            async with world.reader(checkpoint=checkpoint.id) as reader:
                await reader.refresh()
                assert (await reader.get(b"a"), reader.manifest_id) == (b"1", checkpoint.manifest_id)
            assert await world.version() == before

    run(test)


def test_a_name_stands_for_one_checkpoint_and_for_none_of_several() -> None:
    async def test(world: World) -> None:
        async with world.db() as db:
            await db.put(b"a", b"1")
            first = await db.checkpoint(name="nightly")
            await db.put(b"a", b"2")
            second = await db.checkpoint(name="copy", source="nightly")
            assert second.manifest_id == first.manifest_id
        async with world.reader(checkpoint="nightly") as reader:
            assert (await reader.get(b"a"), reader.checkpoint_id) == (b"1", first.id)
        twin = await create_checkpoint(await world.manifests().load(), world.env, lifetime_ms=1000, name="nightly")
        with pytest.raises(AmbiguousCheckpoint, match=f"{first.id}, {twin.id}"):
            await world.reader(checkpoint="nightly")
        world.clock.shift_ms = 2000
        async with world.reader(checkpoint="nightly") as reader:
            assert reader.checkpoint_id == first.id, "the other one is over"

    run(test)


def test_a_destroyed_database_is_read_until_the_lease_is_over() -> None:
    async def test(world: World) -> None:
        async with world.db() as db:
            await db.put(b"a", b"1")
            await db.flush("memtable")
        async with world.reader(checkpoint_lifetime="7201s") as reader:
            await world.store.put(destroyed_key("db"), b"{}")
            world.clock.shift_ms = 90 * 60_000
            before = await world.version()
            await reader.refresh()
            assert await reader.get(b"a") == b"1"
            assert await world.version() == before, "the lease is not renewed"
            world.clock.shift_ms = 121 * 60_000
            with pytest.raises(InvalidDbState, match="destroyed"):
                await reader.refresh()

    run(test)


def test_a_closed_reader() -> None:
    async def test(world: World) -> None:
        async with world.db() as db:
            await db.put(b"a", b"1")
            await db.flush("memtable")
        reader = await world.reader()
        scan = reader.scan()
        await anext(scan)
        await reader.close()
        await reader.close()
        for call in (reader.get(b"a"), reader.get_many([b"a"]), reader.refresh(), scan.columns()):
            with pytest.raises(ClosedError):
                await call
        with pytest.raises(ClosedError):
            reader.scan()
        assert (await world.latest()).checkpoints == ()

    run(test)


def test_impossible_keys() -> None:
    async def test(world: World) -> None:
        async with world.db(), world.reader() as reader:
            assert await reader.get(bytes(100_000)) is None
            assert await reader.get(memoryview(b"abc")) is None
            for key in (b"", "text", 7):
                with pytest.raises(InvalidRequestError):
                    await reader.get(key)

    run(test)


def test_a_reader_travels_as_what_it_serves(tmp_path: Any) -> None:
    """A pickled reader opens pinned to the checkpoint of the original, with the rows of the WAL that it showed."""

    async def test() -> None:
        url = f"file://{tmp_path}/db"
        async with shale.Db.open(url) as db:
            await db.put(b"a", b"1")
            await db.flush("memtable")
            async with DbReader.open(url) as reader:
                packed = pickle.dumps(reader)
                await db.put(b"a", b"2")
                await db.flush("memtable")
                async with pickle.loads(packed) as other:
                    assert await other.get(b"a") == b"1"
                    assert (other.checkpoint_id, other.manifest_id) == (reader.checkpoint_id, reader.manifest_id)
            async with DbReader.open(url) as reader:
                await (await db.put(b"b", b"1")).durable()
                await reader.refresh()
                packed = pickle.dumps(reader)
                await (await db.put(b"b", b"2")).durable()
                async with pickle.loads(packed) as other:
                    assert await other.get_many([b"a", b"b"]) == [b"2", b"1"]
                    assert other.visible_seq == reader.visible_seq
                    again = pickle.dumps(other)
                for file in sorted((tmp_path / "db" / "wal").iterdir())[:-1]:
                    file.unlink()
                with pytest.raises(WalTruncated, match="pickle it again after"):
                    await pickle.loads(again)
        world = World()
        async with world.db(), world.reader() as reader:
            with pytest.raises(TypeError, match="URL"):
                pickle.dumps(reader)

    anyio.run(test)


def test_manifests_that_were_read_are_those_that_are_served() -> None:
    """The checkpoint's manifest consists of the bytes in the store, not of a copy that may differ."""

    async def test(world: World) -> None:
        async with world.db() as db, world.reader() as reader:
            await db.put(b"a", b"1")
            await db.flush("memtable")
            await reader.refresh()
            got = await world.store.get(manifest_key("db", reader.manifest_id))
            assert got is not None
            assert decode_manifest(got.data) == reader.manifest

    run(test)


def test_replay_needs_little_more_than_the_rows() -> None:
    """Memory beyond the rows is bounded by a few tables and the files read ahead, for a WAL of any length."""

    async def test(world: World) -> None:
        files, file_bytes, table_bytes = 60, 100_000, 200_000
        async with world.db(flush_interval=None) as db:
            for number in range(files):
                async with db.batch() as batch:
                    for row in range(100):
                        batch.put(b"%d/%d" % (number, row), bytes(file_bytes // 100))
                await db.flush("wal")
            await db.close("wal")
        async with world.reader():
            pass  # what is imported and compiled with the first use does not count
        gc.collect()
        tracemalloc.start()
        try:
            async with world.reader(max_memtable_bytes=table_bytes) as reader:
                assert reader.memtable_count >= 20
                kept_bytes, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert kept_bytes < 1.2 * files * file_bytes
        assert peak_bytes - kept_bytes < 4 * table_bytes + (8 + PRELOAD_FILES_MAX) * file_bytes

    run(test)
