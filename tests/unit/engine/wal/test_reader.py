"""Rows straight from WAL files."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shale
from shale import sync
from shale.engine.wal.reader import WalRow, _places_of
from shale.errors import InvalidRequestError, LatestRecordMissing, WalTruncated
from shale.format.names import wal_key
from shale.kernels.rows import rows_from_entries
from shale.protocol.wal_completeness import WalGap
from shale.store.memory import MemoryStore
from shale.types import Entry

pytestmark = pytest.mark.anyio


async def written(store: MemoryStore, **settings: Any) -> None:
    """Write four files after the fence, and close without a flush."""
    db = await shale.Db.open("db", store=store, flush_interval=0, **settings)
    await (await db.put(b"a", b"1")).durable()
    await (await db.put(b"b", b"2")).durable()
    batch = db.new_batch()
    batch.put(b"a", b"3")
    batch.put(b"longer", b"4")
    await (await db.write(batch)).durable()
    await (await db.delete(b"b")).durable()
    await db.close(flush="wal")


def shown(rows: list[WalRow]) -> list[tuple[int, bytes, bytes, int]]:
    return [(row.wal_id, row.entry.key, row.entry.value, row.entry.seq) for row in rows]


ROWS = [(2, b"a", b"1", 1), (3, b"b", b"2", 2), (4, b"a", b"3", 3), (4, b"longer", b"4", 3), (5, b"b", b"", 4)]


async def test_rows_come_in_the_order_in_which_they_were_written() -> None:
    store = MemoryStore()
    await written(store)
    async with shale.Admin("db", store=store) as admin:
        assert shown([row async for row in admin.wal.rows()]) == ROWS
        assert shown([row async for row in admin.wal.rows(3, 4)]) == ROWS[1:4]
        assert shown([row async for row in admin.wal.rows(last_id=2)]) == ROWS[:1]
        assert shown([row async for row in admin.wal.rows(5, 4)]) == []
        assert await admin.wal.file_ids() == range(1, 6)


async def test_the_newest_row_of_a_key_and_all_of_them() -> None:
    store = MemoryStore()
    await written(store)
    async with shale.Admin("db", store=store) as admin:
        newest = await admin.wal.get(b"a")
        assert newest is not None
        assert shown([newest]) == [ROWS[2]]
        older = await admin.wal.get(bytearray(b"a"), last_id=3)
        assert older is not None
        assert shown([older]) == [ROWS[0]]
        deleted = await admin.wal.get(b"b")
        assert deleted is not None
        assert deleted.entry.is_tombstone
        assert await admin.wal.get(b"none") is None
        assert shown([row async for row in admin.wal.versions(b"b")]) == [ROWS[4], ROWS[1]]


async def test_a_lookup_reads_no_file_older_than_the_one_with_the_key() -> None:
    store = MemoryStore()
    async with shale.Db.open("db", store=store, flush_interval=0) as db:
        for number in range(12):
            await (await db.put(b"%d" % number, b"v")).durable()
        del store.objects[wal_key("db", 3)]
        async with shale.Admin("db", store=store) as admin:
            found = await admin.wal.get(b"11", last_id=13)
            assert found is not None
            assert found.wal_id == 13
            with pytest.raises(WalTruncated):
                await admin.wal.get(b"0", last_id=13)
            with pytest.raises(WalTruncated):
                [row async for row in admin.wal.rows(1, 13)]


async def test_flushed_rows_are_found_by_ids_only() -> None:
    store = MemoryStore()
    async with shale.Db.open("db", store=store, flush_interval=0) as db:
        await (await db.put(b"a", b"1")).durable()
        await db.flush("memtable")
        async with shale.Admin("db", store=store) as admin:
            assert await admin.wal.get(b"a") is None
            assert await admin.wal.get(b"a", first_id=1) is not None


async def test_a_parallel_wal_ends_before_its_first_gap() -> None:
    store = MemoryStore()
    async with shale.Db.open("db", store=store, flush_interval=0, max_parallel_writes=2) as db:
        for key in (b"a", b"b", b"c", b"d"):
            await (await db.put(key, b"1")).durable()
        # The manifest does not know of the file, so it may still be in flight.
        del store.objects[wal_key("db", 5)]
        async with shale.Admin("db", store=store) as admin:
            assert await admin.wal.file_ids() == range(1, 5)


async def test_a_lost_file_is_no_end() -> None:
    """Whatever the search for the end passes over or stops at."""
    store = MemoryStore()
    await written(store)
    for lost in (2, 3, 4, 5):
        data = store.objects.pop(wal_key("db", lost))
        async with shale.Admin("db", store=store) as admin:
            with pytest.raises(WalTruncated, match=f"{wal_key('db', lost)}.*--allow-wal-gap"):
                [row async for row in admin.wal.rows()]
            with pytest.raises(WalTruncated, match=f"file {lost} "):
                [row async for row in admin.wal.versions(b"none")]
            gaps: list[WalGap] = []
            found = shown([row async for row in admin.wal.rows(on_gap=gaps.append)])
            assert found == [row for row in ROWS if row[0] != lost]
            assert gaps == [WalGap(lost, lost)]
            assert shown([row async for row in admin.wal.versions(b"a", on_gap=gaps.append)]) == [
                row for row in reversed(ROWS) if row[1] == b"a" and row[0] != lost
            ]
        store.objects[wal_key("db", lost)] = data


async def test_the_key_of_the_files_is_used() -> None:
    store, key = MemoryStore(), shale.AesGcm({"k": bytes(32)})
    await written(store, block_transformer=key)
    async with shale.Admin("db", store=store, block_transformer=key) as admin:
        assert await admin.wal.get(b"longer") is not None


async def test_what_cannot_be_read() -> None:
    async with shale.Admin("db", store=MemoryStore()) as admin:
        with pytest.raises(LatestRecordMissing):
            await admin.wal.get(b"a")
        with pytest.raises(InvalidRequestError, match="positive"):
            await admin.wal.get(b"a", first_id=0)


def test_the_blocking_twin_has_the_same() -> None:
    store = MemoryStore()
    with sync.Db.open("db", store=store, flush_interval=0) as db:
        db.put(b"a", b"1").durable()
        with sync.Admin("db", store=store) as admin:
            assert [row.entry.key for row in admin.wal.rows()] == [b"a"]
            assert [row.wal_id for row in admin.wal.versions(b"a")] == [2]
            found = admin.wal.get(b"a")
            assert found is not None
            assert admin.wal.file_ids() == range(1, 3)


@given(st.lists(st.binary(min_size=0, max_size=3)), st.binary(max_size=3))
def test_the_places_of_a_key_are_those_of_a_plain_search(keys: list[bytes], key: bytes) -> None:
    rows = rows_from_entries([Entry(each, b"v", seq, 0) for seq, each in enumerate(keys)])
    assert _places_of(rows, key) == [place for place, each in enumerate(keys) if each == key]
