"""Subscriptions to the status of writers and readers."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

import shale
from shale.admin.admin import Admin
from shale.concurrency.signal import Signal
from shale.engine.status_updates import StatusSubscription, StatusUpdate
from shale.errors import ClosedError, FencedError
from shale.format.sst.filter_policy import FixedPrefix
from shale.store.memory import MemoryStore
from shale.types import Manifest

Story = Callable[[Any], Awaitable[None]]
WAIT_S = 10


async def until(subscription: StatusSubscription, is_it: Callable[[StatusUpdate], bool]) -> StatusUpdate:
    with anyio.fail_after(WAIT_S):
        async for update in subscription:
            if is_it(update):
                return update
    raise AssertionError("the subscription ended")


def run(story: Story, **options: Any) -> None:
    async def main() -> None:
        store = options.pop("store", None) or MemoryStore()
        async with shale.Db.open("db", store=store, flush_interval=0, **options) as db:
            await story(db)

    anyio.run(main)


def test_it_begins_with_the_status_now_and_follows_durable_rows() -> None:
    async def story(db: shale.Db) -> None:
        updates = db.status.subscribe()
        first = await anext(updates)
        assert first.durable_seq == 0
        assert first.manifest == db.status.manifest
        for key in (b"a", b"b", b"c"):
            await db.put(key, b"v")
        await db.flush("wal")
        assert (await until(updates, lambda update: update.durable_seq >= 3)).durable_seq == 3

    run(story)


def test_it_follows_the_manifest() -> None:
    async def story(db: shale.Db) -> None:
        updates = db.status.subscribe()
        before = await anext(updates)
        await db.put(b"a", b"v")
        await db.flush("memtable")
        update = await until(
            updates, lambda each: each.manifest_id > before.manifest_id and bool(each.manifest.tree.l0)
        )
        assert update.manifest_id == db.status.manifest_id

    run(story)


def test_a_commit_of_another_process_is_news_after_a_refresh() -> None:
    store = MemoryStore()

    async def story(db: shale.Db) -> None:
        updates = db.status.subscribe()
        before = await anext(updates)
        async with Admin("db", store=store) as admin:
            await admin.checkpoints.create(name="other")
        await db.refresh()
        update = await until(updates, lambda each: each.manifest_id > before.manifest_id)
        assert [entry.name for entry in update.manifest.checkpoints if entry.writer_epoch is None] == ["other"]

    run(story, store=store)


def test_a_new_segment_is_news_before_it_is_flushed() -> None:
    async def story(db: shale.Db) -> None:
        updates = db.status.subscribe()
        assert (await anext(updates)).segments == ()
        await db.put(b"a/1", b"v")
        assert (await until(updates, lambda each: bool(each.segments))).segments == (b"a/",)
        batch = shale.WriteBatch()
        batch.put(b"b/1", b"v")
        await db.write(batch)
        assert (await until(updates, lambda each: len(each.segments) > 1)).segments == (b"a/", b"b/")

    run(story, segment_extractor=FixedPrefix("two", 2))


def test_a_slow_subscriber_gets_the_newest_status_only() -> None:
    async def story(db: shale.Db) -> None:
        updates = db.status.subscribe()
        await anext(updates)
        for number in range(5):
            await db.put(b"a", b"%d" % number)
            await db.flush("wal")
        assert (await anext(updates)).durable_seq == 5
        with anyio.move_on_after(0) as scope:
            await anext(updates)
        assert scope.cancelled_caught, "nothing has changed"

    run(story)


def test_the_last_status_names_the_end() -> None:
    async def main() -> None:
        store = MemoryStore()
        db = await shale.Db.open("db", store=store)
        updates = db.status.subscribe()
        await db.close()
        last = await until(updates, lambda each: each.problem is not None)
        assert isinstance(last.problem, ClosedError)
        with pytest.raises(StopAsyncIteration):
            await anext(updates)

        old = await shale.Db.open("db", store=store)
        updates = old.status.subscribe()
        async with shale.Db.open("db", store=store):
            with pytest.raises(FencedError):
                await old.refresh()
        assert isinstance((await until(updates, lambda each: each.problem is not None)).problem, FencedError)
        with pytest.raises(FencedError):
            await old.close()

    anyio.run(main)


def test_a_reader_has_it_too() -> None:
    store = MemoryStore()

    async def story(db: shale.Db) -> None:
        async with shale.DbReader.open("db", store=store, follow_latest=True) as reader:
            updates = reader.subscribe()
            assert (await anext(updates)).durable_seq == 0
            await db.put(b"a", b"v")
            await db.flush("memtable")
            await reader.refresh()
            update = await until(updates, lambda each: each.durable_seq == 1)
            assert update.manifest_id == reader.manifest_id
            await reader.close()
            assert isinstance((await until(updates, lambda each: each.problem is not None)).problem, ClosedError)

    run(story, store=store)


def test_an_unchanged_status_is_no_news() -> None:
    async def main() -> None:
        signal, state = Signal(), StatusUpdate(1, 1, Manifest(), (), None)
        updates = StatusSubscription(lambda: state, signal)
        assert await anext(updates) == state
        async with anyio.create_task_group() as tasks:
            got: list[StatusUpdate] = []

            async def take() -> None:
                got.append(await anext(updates))

            tasks.start_soon(take)
            for durable_seq in (1, 2):
                await anyio.wait_all_tasks_blocked()
                assert got == []
                state = state._replace(durable_seq=durable_seq)
                signal.notify()
        assert [each.durable_seq for each in got] == [2]

    anyio.run(main)
