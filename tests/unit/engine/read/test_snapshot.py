"""Snapshots show one state during all later changes of the database."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

import shale
from shale.errors import ClosedError, FencedError, InvalidRequestError
from shale.store.memory import MemoryStore

Story = Callable[[MemoryStore], Awaitable[None]]


def run(story: Story) -> None:
    anyio.run(story, MemoryStore())


def open_db(store: MemoryStore, **settings: Any) -> Any:
    return shale.Db.open("db", store=store, **{"flush_interval": None, "merge_operator": "concatenate", **settings})


async def contents(reads: Any, **options: Any) -> dict[bytes, bytes]:
    return {row.key: row.value async for row in reads.scan(**options)}


def test_a_snapshot_does_not_change() -> None:
    async def story(store: MemoryStore) -> None:
        async with open_db(store) as db:
            await db.put(b"a", b"1")
            await db.put(b"b", b"1")
            await db.merge(b"m", b"1")
            snapshot = await db.snapshot()
            expected = {b"a": b"1", b"b": b"1", b"m": b"1"}
            for round_ in (b"2", b"3"):
                await db.put(b"a", round_)
                await db.delete(b"b")
                await db.merge(b"m", round_)
                await db.put(b"new", round_)
                for kind in ("wal", "memtable"):
                    assert await contents(snapshot) == expected
                    assert list(await contents(snapshot, reverse=True)) == [b"m", b"b", b"a"]
                    assert await snapshot.get_many([b"m", b"new", b"a"]) == [b"1", None, b"1"]
                    assert [await snapshot.get(key) for key in (b"b", b"new", b"m")] == [b"1", None, b"1"]
                    assert (await snapshot.get_row(b"a")).seq == 1
                    await db.flush(kind)
            assert snapshot.seq == 3
            assert await contents(db) == {b"a": b"3", b"m": b"123", b"new": b"3"}

    run(story)


def test_a_durable_snapshot_shows_what_a_crash_cannot_undo() -> None:
    async def story(store: MemoryStore) -> None:
        async with open_db(store) as db:
            await db.put(b"k", b"1")
            await db.flush("wal")
            await db.put(b"k", b"2")
            async with db.snapshot(durable=True) as durable, db.snapshot() as newest:
                assert (durable.seq, await durable.get(b"k")) == (1, b"1")
                assert (newest.seq, await newest.get(b"k")) == (2, b"2")
                assert await newest.get(b"k", durability="durable") == b"1"
                assert await contents(newest, durability="durable") == {b"k": b"1"}
                await db.flush("memtable")
                assert await durable.get(b"k", durability="durable") == b"1"
                assert await newest.get(b"k", durability="durable") == b"2"

    run(story)


def test_who_holds_a_snapshot_is_known_until_it_is_closed_or_dropped() -> None:
    async def story(store: MemoryStore) -> None:
        async with open_db(store) as db:
            await db.put(b"k", b"1")
            snapshot = await db.snapshot()
            assert db.status.oldest_snapshot_seq == 1
            await snapshot.close()
            await snapshot.close()
            assert db.status.oldest_snapshot_seq is None
            for read in (snapshot.get(b"k"), snapshot.get_many([b"k"]), contents(snapshot)):
                with pytest.raises(ClosedError, match="the snapshot is closed"):
                    await read
            dropped = await db.snapshot()
            scan = dropped.scan()
            del dropped
            assert [row.value async for row in scan] == [b"1"]
            del scan
            assert db.status.oldest_snapshot_seq is None
            async with db.snapshot():
                assert db.status.open_snapshots == 1
            assert db.status.open_snapshots == 0

    run(story)


async def put_and_flush(db: shale.Db) -> None:
    """The put fails already if the writer has read the manifest of its successor by then."""
    await db.put(b"k", b"2")
    await db.flush("wal")


def test_a_snapshot_ends_with_its_database() -> None:
    async def story(store: MemoryStore) -> None:
        db = await open_db(store)
        await db.put(b"k", b"1")
        snapshot = await db.snapshot()
        await db.close()
        for read in (snapshot.get(b"k"), contents(snapshot), db.snapshot(), db.transaction()):
            with pytest.raises(ClosedError):
                await read
        first = await open_db(store)
        snapshot = await first.snapshot()
        async with open_db(store):
            with pytest.raises(FencedError):
                await put_and_flush(first)
            with pytest.raises(FencedError):
                await snapshot.get(b"k")
        with pytest.raises(FencedError):
            await first.close()

    run(story)


def test_a_refused_commit_does_not_show_in_the_number_of_a_snapshot() -> None:
    async def story(store: MemoryStore) -> None:
        async with open_db(store, merge_operator=None) as db:
            await db.put(b"k", b"1")
            batch = shale.WriteBatch()
            batch.merge(b"k", b"2")
            for _ in range(2):
                with pytest.raises(shale.InvalidRequestError):
                    await db.write(batch)
            assert (await db.snapshot()).seq == db.status.last_seq == 1
            assert (await db.put(b"k", b"4")).seq == 4

    run(story)


def test_sequence_numbers_have_times() -> None:
    async def story(store: MemoryStore) -> None:
        async with open_db(store) as db:
            assert db.status.seq_at(datetime.now(UTC)) is None
            assert db.status.time_of(1) is None
            handle = await db.put(b"k", b"1")
            await db.put(b"k", b"2")
            second = datetime.fromtimestamp(handle.create_ts // 1000, UTC)
            for _ in range(2):
                assert db.status.time_of(2) == db.status.time_of(1) == db.status.time_of(0, round_up=True) == second
                assert (db.status.time_of(0), db.status.time_of(2, round_up=True)) == (None, None)
                assert db.status.seq_at(second) == db.status.seq_at(handle.create_ts + 999, round_up=False) == 1
                assert db.status.seq_at(second - timedelta(seconds=1)) is None
                assert db.status.seq_at(second - timedelta(hours=1), round_up=True) == 1
                assert db.status.seq_at(second + timedelta(seconds=1), round_up=True) is None
                await db.flush("memtable")
            async with shale.DbReader.open("db", store=store) as reader, shale.Admin("db", store=store) as admin:
                for up in (False, True):
                    for seq in (0, 1, 2):
                        time = db.status.time_of(seq, round_up=up)
                        assert reader.time_of(seq, round_up=up) == await admin.time_of(seq, round_up=up) == time
                    for ago_s in (-1, 0, 1):
                        time = second - timedelta(seconds=ago_s)
                        found = db.status.seq_at(time, round_up=up)
                        assert reader.seq_at(time, round_up=up) == await admin.seq_at(time, round_up=up) == found
            with pytest.raises(InvalidRequestError):
                db.status.seq_at("noon")  # type: ignore[arg-type]

    run(story)
