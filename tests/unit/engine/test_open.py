"""Opening for writing: created, refused and replaced databases.

Source: docs/reference/protocol.md 4.1, 4.2, 4.15.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import anyio
import anyio.lowlevel
import pytest

import shale
from shale.engine.wal import replay
from shale.engine.write.writer import Writer
from shale.env import Env
from shale.errors import (
    CorruptionError,
    InvalidDbState,
    InvalidRequestError,
    InvalidVersion,
    SegmentExtractorMismatch,
    ShaleError,
    WalDisabled,
)
from shale.format.manifest import decode_manifest, encode_manifest
from shale.format.names import deleting_key, destroyed_key, manifest_key, wal_key
from shale.store.memory import MemoryStore
from shale.store.port import GetResult
from shale.types import Checkpoint, Manifest, ManifestId, Segment, Tree
from tests.unit.engine.waiting import until


def run(scenario: Callable[[MemoryStore], Awaitable[None]]) -> None:
    anyio.run(scenario, MemoryStore())


def open_db(store: MemoryStore, **settings: Any) -> Any:
    return shale.Db.open("db", store=store, **{"flush_interval": 0, **settings})


async def keys(store: MemoryStore) -> list[str]:
    return [meta.key for meta in await store.list("db/")]


def test_a_fresh_database_is_two_manifests_and_a_fence() -> None:
    async def scenario(store: MemoryStore) -> None:
        db = await open_db(store)
        assert await keys(store) == [manifest_key("db", 1), manifest_key("db", 2), "db/wal/00000000000000000001.sst"]
        first, second = [decode_manifest((await store.get(manifest_key("db", n))).data) for n in (1, 2)]
        assert first == Manifest()
        assert (second.writer_epoch, second.next_wal_sst_id) == (1, 1)
        await db.close()
        # The end of the WAL is persisted once more at a clean close.
        assert db.status.manifest_id == 3
        assert db.status.manifest.next_wal_sst_id == 2

    run(scenario)


@pytest.mark.parametrize(
    ("manifest", "error"),
    [
        pytest.param(Manifest(initialized=False), InvalidDbState, id="half-built clone"),
        pytest.param(Manifest(segment_extractor_name="p4"), SegmentExtractorMismatch, id="segmented"),
        pytest.param(
            Manifest(segments=(Segment(prefix=b"a", tree=Tree()),), segment_extractor_name="p"),
            SegmentExtractorMismatch,
            id="with segments",
        ),
    ],
)
def test_databases_that_are_refused(manifest: Manifest, error: type[Exception]) -> None:
    async def scenario(store: MemoryStore) -> None:
        await store.put(manifest_key("db", 1), encode_manifest(manifest))
        before = await keys(store)
        with pytest.raises(error, match="db"):
            await open_db(store)
        assert await keys(store) == before

    run(scenario)


@pytest.mark.parametrize("marker", [destroyed_key("db"), deleting_key("db")])
@pytest.mark.parametrize("exists", [True, False])
def test_a_destroyed_database_is_refused_even_where_nothing_is_left(marker: str, exists: bool) -> None:
    async def scenario(store: MemoryStore) -> None:
        if exists:
            await (await open_db(store)).close()
        await store.put(marker, b"")
        before = await keys(store)
        with pytest.raises(InvalidDbState, match="destroyed"):
            await open_db(store)
        assert await keys(store) == before

    run(scenario)


def test_nothing_is_created_where_a_database_was_expected() -> None:
    async def scenario(store: MemoryStore) -> None:
        with pytest.raises(InvalidDbState, match="no database"):
            await open_db(store, create_if_missing=False)
        assert await keys(store) == []

    run(scenario)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        pytest.param(b"\x00\x09" + bytes(40), InvalidVersion, id="newer version"),
        pytest.param(encode_manifest(Manifest())[:-7], CorruptionError, id="truncated"),
        pytest.param(b"", CorruptionError, id="empty"),
    ],
)
def test_a_manifest_that_cannot_be_read_is_named_and_nothing_is_written(data: bytes, error: type[Exception]) -> None:
    async def scenario(store: MemoryStore) -> None:
        await store.put(manifest_key("db", 3), data)
        with pytest.raises(error) as caught:
            await open_db(store)
        assert manifest_key("db", 3) in str(caught.value)
        assert await keys(store) == [manifest_key("db", 3)]

    run(scenario)


@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda data: data[:3] + b"?" + data[4:]])
def test_a_wal_that_cannot_be_replayed_changes_nothing(damage: Callable[[bytes], bytes]) -> None:
    async def scenario(store: MemoryStore) -> None:
        db = await open_db(store)
        for number in range(6):
            await db.put(b"key", b"%d" % number)
            await db.flush("wal")
        place = "db/wal/00000000000000000006.sst"
        good = bytes((await store.get(place)).data)
        await store.put(place, damage(good))
        before = {key: bytes((await store.get(key)).data) for key in await keys(store)}
        with pytest.raises(CorruptionError, match=place):
            await open_db(store)
        assert {key: bytes((await store.get(key)).data) for key in await keys(store)} == before
        # The writer that is alive has lost neither its epoch nor a slot of the WAL.
        await db.put(b"key", b"last")
        await db.flush("memtable")
        await db.close()
        # Its rows are in L0 now, so the damaged file is no longer needed.
        async with open_db(store) as again:
            assert await again.get(b"key") == b"last"

    run(scenario)


def test_what_others_own_survives_a_writer() -> None:
    """Every manifest that the writer writes keeps the checkpoints of other processes."""
    checkpoint = Checkpoint(id=UUID(int=7), manifest_id=ManifestId(1), expire_s=2**32 - 1, create_s=5, name="mine")

    async def scenario(store: MemoryStore) -> None:
        await store.put(manifest_key("db", 1), encode_manifest(Manifest(checkpoints=(checkpoint,))))
        async with open_db(store) as db:
            await db.put(b"k", b"v")
            await db.flush("memtable")
            others = [entry for entry in db.status.manifest.checkpoints if entry.writer_epoch is None]
            assert others == [checkpoint]

    run(scenario)


def test_a_second_writer_replaces_the_first_and_keeps_its_rows() -> None:
    async def scenario(store: MemoryStore) -> None:
        first = await open_db(store)
        await (await first.put(b"a", b"1")).durable()
        unflushed = await first.put(b"b", b"2")
        second = await open_db(store)
        with pytest.raises(shale.FencedError):
            await unflushed.durable()
        assert isinstance(first.status.problem, shale.FencedError)
        assert await first.status.wait_failed() is first.status.problem
        for call in (first.put(b"c", b""), first.get(b"a"), first.flush()):
            with pytest.raises(shale.FencedError):
                await call
        before = await keys(store)
        with pytest.raises(shale.FencedError):
            await first.close()
        assert await keys(store) == before
        assert [row.key async for row in second.scan()] == [b"a"]
        await second.close()

    run(scenario)


class StoreWithSlowReplay(MemoryStore):
    """Holds the first read of the first WAL file after the second one was written until ``meanwhile`` has ended."""

    meanwhile: Callable[[], Awaitable[None]] | None = None

    async def get(self, key: str) -> GetResult | None:
        if self.meanwhile is not None and key == wal_key("db", 1) and wal_key("db", 2) in self.objects:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        return await super().get(key)


def test_a_writer_that_is_replaced_during_its_replay_is_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tasks have ended before the replay has: there is nothing to add to them any more."""
    monkeypatch.setattr(replay, "KEPT_BYTES_MAX", 0)
    fail = Writer.fail

    async def scenario() -> None:
        store = StoreWithSlowReplay()
        failed = anyio.Event()
        newer: list[shale.Db] = []

        def noted(writer: Writer, error: ShaleError) -> None:
            fail(writer, error)
            if writer.manifest.epoch == 2:
                failed.set()

        async def replaced() -> None:
            newer.append(await open_db(store))
            with anyio.fail_after(60):
                await failed.wait()
            for _ in range(10):
                await anyio.lowlevel.checkpoint()  # the other tasks end

        monkeypatch.setattr(Writer, "fail", noted)
        old = await open_db(store)
        store.meanwhile = replaced
        with pytest.raises(shale.FencedError):
            await open_db(store, manifest_poll_interval="10ms")
        with pytest.raises(shale.FencedError):
            await old.close()
        await newer[0].close()

    anyio.run(scenario)


@pytest.mark.parametrize("steps", range(0, 40, 3))
def test_cancelling_open_leaves_no_task_running(steps: int) -> None:
    async def scenario(store: MemoryStore) -> None:
        async with open_db(store) as db:
            await db.put(b"k", b"v")
            await db.close("wal")
        handles: list[shale.Db] = []

        async def opening() -> None:
            handles.append(await open_db(store))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(opening)
            for _ in range(steps):
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        for handle in handles:
            await handle.close("none")
        assert asyncio.all_tasks() == {asyncio.current_task()}
        async with open_db(store) as db:
            assert await db.get(b"k") == b"v"

    run(scenario)


async def put_for_ever(db: shale.Db) -> None:
    while True:
        await db.put(b"k%d" % db.status.last_seq, bytes(100))


def test_a_put_that_is_given_up_while_it_waits_for_room_writes_nothing() -> None:
    async def scenario(store: MemoryStore) -> None:
        limits = {"l0_sst_size_bytes": 1000, "max_unflushed_bytes": 3000, "l0_max_ssts": 1, "l0_max_ssts_per_key": 1}
        async with open_db(store, **limits) as db:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(put_for_ever, db)
                await until(lambda: len(db.status.manifest.tree.l0) == 1 and db.status.unflushed_bytes >= 3000)
                await anyio.wait_all_tasks_blocked()
                while db.status.unflushed_bytes < 3000:  # the table of that L0 was dropped since: more puts have room
                    await anyio.wait_all_tasks_blocked()
                tasks.cancel_scope.cancel()
            # The table may still have been dropped in the last moment; more puts may have had room then, none in part.
            last_seq = db.status.last_seq
            assert await db.get(b"k%d" % last_seq) is None
            assert await db.get(b"k%d" % (last_seq - 1)) is not None
        async with open_db(store) as db:
            assert db.status.last_seq == last_seq

    run(scenario)


def test_without_a_wal() -> None:
    async def scenario(store: MemoryStore) -> None:
        db = await open_db(store, wal_enabled=False)
        handle = await db.put(b"k", b"v")
        with pytest.raises(WalDisabled):
            await db.flush("wal")
        assert db.status.durable_seq == 0
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(handle.durable)
            await anyio.lowlevel.checkpoint()
            await db.flush()
        assert db.status.durable_seq == 1
        assert db.status.manifest.replay_after_wal_id == 1
        await db.put(b"at close", b"v")
        await db.close()
        assert [key for key in await keys(store) if "/wal/" in key] == ["db/wal/00000000000000000001.sst"]
        async with open_db(store) as again:
            assert [row.key async for row in again.scan()] == [b"at close", b"k"]

    run(scenario)


def test_wal_in_a_store_of_its_own() -> None:
    async def scenario(store: MemoryStore) -> None:
        other = MemoryStore()
        async with open_db(store, wal_store=other) as db:
            await (await db.put(b"k", b"v")).durable()
            await db.close("wal")
        assert [meta.size > 0 for meta in await other.list("db/wal/")] == [False, True]
        assert not [key for key in await keys(store) if "/wal/" in key]
        async with open_db(store, wal_store=other) as db:
            assert await db.get(b"k") == b"v"

    run(scenario)


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        ((), {}),
        (("memory:///a",), {"store": "memory:///"}),
        (("a",), {"path": "b", "store": "memory:///"}),
        (("nonsense",), {}),
        (("memory:///a",), {"flush_intervall": 1}),
        (("memory:///a",), {"options": shale.DbOptions(), "flush_interval": 1}),
    ],
)
def test_impossible_arguments_fail_before_anything_is_touched(arguments: tuple[str, ...], settings: Any) -> None:
    with pytest.raises(InvalidRequestError):
        shale.Db.open(*arguments, **settings)


def test_names_of_the_library_load_on_demand() -> None:
    assert {"Db", "WriteBatch", "FencedError"} <= set(dir(shale))
    assert shale.Env is Env
    with pytest.raises(AttributeError, match="nonsense"):
        shale.nonsense  # noqa: B018


def test_a_writer_ends_once_the_database_is_marked() -> None:
    """The writer opened between the fence of a soft destroy and the marker (docs/reference/protocol.md 8.8)."""

    async def keep_writing(db: Any) -> None:
        with anyio.fail_after(60):
            while True:
                await (await db.put(b"k", b"v")).durable()

    async def scenario(store: MemoryStore) -> None:
        db = await open_db(store, manifest_poll_interval=0.001)
        await store.put(destroyed_key("db"), b"{}")
        with pytest.raises(InvalidDbState, match="destroyed"):
            await keep_writing(db)
        with pytest.raises(InvalidDbState, match="destroyed"):
            await db.close()

    run(scenario)
