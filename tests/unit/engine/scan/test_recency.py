"""Scans by recency; the first tests tell the stories of SlateDB's own tests of ``scan_prefix_by_recency``."""

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import anyio
import pytest

from shale.engine.db import Db
from shale.engine.db_reader import DbReader
from shale.errors import InvalidRequestError, TransactionConflict
from shale.format.sst.filter_policy import FixedPrefix
from shale.store.memory import MemoryStore
from shale.types import Entry
from tests.plain_kernels import without_kernels

Story = Callable[[Db], Awaitable[None]]


class ReadCountingStore(MemoryStore):
    """Counts range reads."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    async def get_range(self, key: str, start: int, end: int) -> Any:
        self.reads += 1
        return await super().get_range(key, start, end)


def run(story: Story, store: Any = None, **options: Any) -> None:
    async def main() -> None:
        settings = {"flush_interval": 0, "merge_operator": "concatenate", **options}
        async with Db.open("db", store=MemoryStore() if store is None else store, **settings) as db:
            await story(db)

    anyio.run(main)


async def found(db: Any, prefix: bytes = b"px:", **options: Any) -> list[tuple[bytes, bytes | None]]:
    return [
        (each.key, None if each.is_tombstone else each.value)
        async for each in db.scan_prefix_by_recency(prefix, **options)
    ]


def test_a_memtable_in_key_order() -> None:
    async def story(db: Db) -> None:
        for key in (b"px:b", b"px:a", b"qq:x", b"px:c"):
            await db.put(key, b"v")
        assert [key for key, _ in await found(db)] == [b"px:a", b"px:b", b"px:c"]
        assert [key for key, _ in await found(db, reverse=True)] == [b"px:c", b"px:b", b"px:a"]
        assert await found(db, b"zz") == []

    run(story)


def test_versions_of_one_source_go_from_new_to_old_in_both_directions() -> None:
    async def story(db: Db) -> None:
        for value in (b"1", b"2"):
            await db.put(b"px:a", value)
            await db.put(b"px:b", value)
        assert await found(db) == [(b"px:a", b"2"), (b"px:a", b"1"), (b"px:b", b"2"), (b"px:b", b"1")]
        assert await found(db, reverse=True) == [(b"px:b", b"2"), (b"px:b", b"1"), (b"px:a", b"2"), (b"px:a", b"1")]

    run(story)


def test_memtable_then_l0_with_tombstones_and_operands() -> None:
    async def story(db: Db) -> None:
        await db.put(b"px:a", b"va")
        await db.put(b"px:b", b"vb")
        await db.flush("memtable")
        await db.put(b"px:b", b"new")
        await db.flush("memtable")
        await db.delete(b"px:a")
        await db.merge(b"px:c", b"+")
        rows = [each async for each in db.scan_prefix_by_recency(b"px:")]
        assert [(each.key, each.value) for each in rows] == [
            (b"px:a", b""), (b"px:c", b"+"), (b"px:b", b"new"), (b"px:a", b"va"), (b"px:b", b"vb"),
        ]  # fmt: skip
        assert [each.is_tombstone for each in rows] == [True, False, False, False, False]
        assert [each.is_merge for each in rows] == [False, True, False, False, False]
        assert rows[0].seq > rows[3].seq

    run(story)


def test_only_what_is_durable() -> None:
    async def story(db: Db) -> None:
        await db.put(b"px:a", b"durable")
        await db.flush("memtable")
        await db.put(b"px:b", b"not yet")
        assert await found(db, durability="durable") == [(b"px:a", b"durable")]

    run(story)


def test_it_shows_the_state_of_its_begin() -> None:
    async def story(db: Db) -> None:
        await db.put(b"px:a", b"1")
        scan = db.scan_prefix_by_recency(b"px:")
        await db.put(b"px:b", b"2")
        await db.flush("memtable")
        assert [each.value async for each in scan] == [b"1"]
        assert [each async for each in scan] == []

    run(story)


def test_what_is_in_memory_needs_no_request() -> None:
    store = ReadCountingStore()

    async def story(db: Db) -> None:
        for number in range(3):
            await db.put(b"px:a", b"%d" % number)
            await db.flush("memtable")
        await db.put(b"px:b", b"v")
        before = store.reads
        scan = db.scan_prefix_by_recency(b"px:")
        assert (await anext(scan)).key == b"px:b"
        assert store.reads == before
        assert (await anext(scan)).value == b"2"
        one = store.reads
        assert one > before
        assert [each.value async for each in scan] == [b"1", b"0"]
        assert store.reads > one

    run(story, store, block_cache_bytes=0)


def test_several_segments_have_no_order() -> None:
    async def story(db: Db) -> None:
        for key in (b"a/1", b"b/1"):
            await db.put(key, b"v")
        await db.flush("memtable")
        with pytest.raises(InvalidRequestError, match="2 segments"):
            db.scan_prefix_by_recency(b"")
        assert await found(db, b"a/") == [(b"a/1", b"v")]

    run(story, segment_extractor=FixedPrefix("two", 2))


def test_a_reader_a_snapshot_and_a_transaction_have_it_too() -> None:
    store = MemoryStore()

    async def story(db: Db) -> None:
        await db.put(b"px:a", b"1")
        async with db.snapshot() as snapshot, db.transaction("serializable") as transaction:
            await db.put(b"px:a", b"2")
            await db.flush("memtable")
            assert await found(snapshot) == [(b"px:a", b"1")]
            transaction.put(b"px:b", b"mine")
            assert await found(transaction) == [(b"px:b", b"mine"), (b"px:a", b"1")]
            with pytest.raises(TransactionConflict):
                await transaction.commit()
        async with DbReader.open("db", store=store, follow_latest=True) as reader:
            assert await found(reader) == [(b"px:a", b"2"), (b"px:a", b"1")]  # which the flush kept for the snapshot

    run(story, store)


@pytest.mark.parametrize("kernels", [False, True], ids=["plain", "kernels"])
@pytest.mark.parametrize("seed", range(4))
def test_random_histories(seed: int, kernels: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row that was written is shown once, newer sources first, at any block boundary."""
    rng = Random(seed)

    async def story(db: Db) -> None:
        sources: list[list[Entry]] = [[]]
        pin = await db.snapshot()  # keeps all versions in flushes
        for step in range(300):
            key, value = b"px:%d" % rng.randrange(8), b"%d " % step * rng.randrange(60)
            handle = await db.put(key, value)
            sources[-1].append(Entry(key, value, handle.seq, 0))
            holds.append(await db.snapshot())
            if rng.random() < 0.01:
                await db.flush("memtable")
                sources.append([])
        if not kernels:
            without_kernels(monkeypatch)
        for reverse in (False, True):
            expected = []
            for rows in reversed(sources):
                newest_first = sorted(rows, key=lambda row: -row.seq)
                expected += sorted(newest_first, key=lambda row: row.key, reverse=reverse)
            rows = [
                (each.key, each.value, each.seq) async for each in db.scan_prefix_by_recency(b"px:", reverse=reverse)
            ]
            assert rows == [(each.key, each.value, each.seq) for each in expected]
        monkeypatch.undo()
        await pin.close()
        for hold in holds:
            await hold.close()

    holds: list[Any] = []
    run(story, block_size_bytes=1024)
