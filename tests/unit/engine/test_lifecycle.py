"""What ``Db`` does to a database that is not open: clones, checkpoints, destroy."""

from collections.abc import Awaitable, Callable
from random import Random
from uuid import UUID

import anyio
import pytest

import shale
from shale import sync
from shale.env import Env, InlineCpu
from shale.errors import (
    CheckpointExpired,
    CheckpointMissing,
    InvalidDeletion,
    InvalidRequestError,
    LatestRecordMissing,
    UnknownCheckpoint,
)
from shale.store.memory import MemoryStore
from shale.types import Checkpoint
from tests.clocks import ManualClock


def run(scenario: Callable[[MemoryStore], Awaitable[None]]) -> None:
    anyio.run(scenario, MemoryStore())


def test_a_clone_is_made_once_and_opened_again() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with shale.Db.open("parent", store=store) as parent:
            await parent.put(b"k", b"1")
            await parent.checkpoint(name="first")
            await parent.put(b"k", b"2")
        first, newest = shale.ParentCheckpoint("parent", "first"), shale.ParentCheckpoint("/parent")
        async with shale.Db.open_from_checkpoint("copy", first, store=store) as copy:
            assert await copy.get(b"k") == b"1"
            await copy.put(b"l", b"own")
        async with shale.Db.open_from_checkpoint("copy", newest, store=store, flush_interval=0) as copy:
            assert await copy.get_many([b"k", b"l"]) == [b"1", b"own"]
        async with shale.Db.open_from_checkpoint("newest", newest, store=store) as copy:
            assert await copy.get(b"k") == b"2"
        async with shale.Db.open("parent", store=store) as parent:
            assert await parent.get_many([b"k", b"l"]) == [b"2", None]

    run(scenario)


def test_a_clone_of_what_does_not_exist_is_not_made() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with shale.Db.open("parent", store=store):
            pass
        async with shale.Db.open("other", store=store):
            pass
        before = set(store.objects)
        with pytest.raises(CheckpointMissing):
            await shale.Db.open_from_checkpoint("copy", shale.ParentCheckpoint("parent", UUID(int=1)), store=store)
        with pytest.raises(LatestRecordMissing):
            await shale.Db.open_from_checkpoint("copy", shale.ParentCheckpoint("none"), store=store)
        with pytest.raises(InvalidRequestError):
            await shale.Db.open_from_checkpoint("other", shale.ParentCheckpoint("parent"), store=store)
        with pytest.raises(InvalidRequestError):
            shale.ParentCheckpoint("s3://bucket/parent")
        assert set(store.objects) == before

    run(scenario)


def test_checkpoints_are_refreshed_and_deleted_without_a_handle() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with shale.Db.open("db", store=store) as db:
            made = await db.checkpoint(name="n", lifetime="1h")
            longer = await shale.Db.refresh_checkpoint("db", "n", "2h", store=store)
            assert 3599 <= longer.expire_s - made.expire_s <= 3610
            assert (await shale.Db.refresh_checkpoint("db", made.id, store=store)).expire_s == 0
        with pytest.raises(UnknownCheckpoint):
            await shale.Db.refresh_checkpoint("db", UUID(int=1), store=store)
        assert await shale.Db.delete_checkpoint("db", made.id, store=store)
        assert not await shale.Db.delete_checkpoint("db", str(made.id), store=store)
        with pytest.raises(CheckpointMissing):
            await shale.Db.delete_checkpoint("db", "n", store=store)

    run(scenario)


def test_a_destroy_respects_checkpoints_and_not_the_one_of_a_writer() -> None:
    async def scenario(store: MemoryStore) -> None:
        crashed = await shale.Db.open("db", store=store)
        made = await crashed.checkpoint()
        with pytest.raises(InvalidDeletion, match=str(made.id)):
            await shale.Db.destroy("db", soft=False, store=store)
        await shale.Db.delete_checkpoint("db", made.id, store=store)
        assert [entry.writer_epoch for entry in (await admin_checkpoints(store))] == [1]
        await shale.Db.destroy("db", soft=False, store=store)
        assert not await store.list("db")
        with pytest.raises(shale.ShaleError):
            await crashed.close()
        async with shale.Db.open("soft", store=store):
            pass
        await shale.Db.destroy("soft", soft=True, store=store)
        with pytest.raises(shale.ShaleError, match="destroyed"):
            await shale.Db.open("soft", store=store)

    run(scenario)


async def admin_checkpoints(store: MemoryStore) -> tuple[Checkpoint, ...]:
    async with shale.Admin(store=store, path="db") as admin:
        return await admin.checkpoints.list()


def test_the_blocking_calls_do_the_same() -> None:
    store = MemoryStore()
    with sync.Db.open("db", store=store) as db:
        db.put(b"k", b"v")
        made = db.checkpoint()
    with sync.Db.open_from_checkpoint("copy", shale.ParentCheckpoint("db", made.id), store=store) as copy:
        assert copy.get(b"k") == b"v"
    assert sync.Db.refresh_checkpoint("db", made.id, "1s", store=store).expire_s > 0
    assert sync.Db.delete_checkpoint("db", made.id, store=store)
    sync.Db.destroy("copy", soft=False, store=store)
    sync.Db.destroy("db", soft=False, store=store)


def test_the_reader_of_an_expired_checkpoint_is_told_so() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with shale.Db.open("db", store=store) as db:
            made = await db.checkpoint(lifetime="1s")
            later = Env(ManualClock(ms=made.expire_s * 1000), Random(1), InlineCpu())
            with pytest.raises(CheckpointExpired, match=f"checkpoint {made.id} expired at"):
                await shale.DbReader.open("db", store=store, checkpoint=made.id, env=later)

    run(scenario)
