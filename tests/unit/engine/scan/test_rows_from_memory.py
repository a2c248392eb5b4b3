"""Rows that come from memory as objects: mixed with columns, changed by the caller, beside other tasks."""

from typing import Any

import anyio
import anyio.to_thread
import pytest

import shale
from shale.engine.memtable.memtable import Memtable
from shale.engine.read.read_options import ReadOptions
from shale.engine.read.super_version import SuperVersion
from shale.engine.scan.cached_rows import WALK_ROWS_MAX, WantedRows, append_cached, last_misses
from shale.kernels.dispatch import use_kernels
from shale.kernels.layout import scan as layout
from shale.kernels.rows import rows_from_entries
from shale.store.memory import MemoryStore
from shale.types import FLAG_TOMBSTONE, Entry, Manifest, Seq, SstView, Tree
from tests.unit.engine.reading import Shelf, scan_of


def entries_of(numbers: range, *, flags: int = 0) -> list[Entry]:
    return [Entry(b"k%06d" % number, b"" if flags else b"v", 1, flags) for number in numbers]


async def a_view(rows: list[Entry], *, in_sst: bool = False) -> SuperVersion:
    """Return a state with these rows in a memtable, or in an SST whose blocks are cached."""
    shelf = Shelf(cache_bytes=16 << 20)
    tables = [] if in_sst else [Memtable.from_rows(rows_from_entries(rows))]
    tree = Tree(l0=(SstView.identity(await shelf.sst(rows)),)) if in_sst else Tree()
    view = SuperVersion(Manifest(tree=tree, last_l0_seq=Seq(10)), tables, shelf.reader, ReadOptions())
    if in_sst:
        assert await scan_of(view, limit=1 << 30).next_batch(len(rows)) != []
    return view


@pytest.mark.parametrize("in_sst", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_columns_and_objects_in_turn_give_each_row_once(reverse: bool, in_sst: bool) -> None:
    async def run() -> None:
        view = await a_view(entries_of(range(20_000)), in_sst=in_sst)
        scan = scan_of(view, reverse=reverse)
        keys: list[bytes] = []
        while True:
            before = len(keys)
            rows = await scan.columns()
            keys += [] if rows is None else [rows.key(number) for number in range(len(rows))]
            keys += [row.key for row in await scan.next_batch(7)]
            async for row in scan:
                keys.append(row.key)
                break
            async for pairs in scan.items(5):
                keys += [key for key, _ in pairs]
                break
            if len(keys) == before:
                break
        assert keys == sorted((b"k%06d" % number for number in range(20_000)), reverse=reverse)

    anyio.run(run)


def test_a_caller_may_change_the_lists_it_gets() -> None:
    async def run() -> None:
        view = await a_view(entries_of(range(3000)))
        scan: Any = scan_of(view)
        keys = []
        async for pairs in scan.items(100):
            keys += [key for key, _ in pairs]
            pairs.reverse()
            pairs.append(None)
            batch = await scan.next_batch(10)
            keys += [row.key for row in batch]
            batch.clear()
        assert keys == [b"k%06d" % number for number in range(3000)]

    anyio.run(run)


@pytest.mark.parametrize("way", ["rows", "items", "batches"])
def test_other_tasks_run_during_a_long_scan(way: str) -> None:
    """Nothing is awaited for rows from memory, so the scan lets them run."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    async def run() -> None:
        view = await a_view(entries_of(range(50_000)))
        scan = scan_of(view)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(other)
            count = 0
            if way == "rows":
                async for _ in scan:
                    count += 1
            else:
                async for part in scan.items(1000) if way == "items" else scan.batches(1000):
                    count += len(part)
            tasks.cancel_scope.cancel()
        assert count == 50_000

    anyio.run(run)
    assert turns >= 8


@pytest.mark.parametrize("reverse", [False, True])
def test_a_long_walk_over_deleted_rows_is_left_to_chunks(reverse: bool) -> None:
    if not use_kernels():
        pytest.skip("there are no compiled kernels")

    async def run() -> None:
        rows = entries_of(range(1, 3 * WALK_ROWS_MAX), flags=FLAG_TOMBSTONE)
        first, last = entries_of(range(1)), entries_of(range(3 * WALK_ROWS_MAX, 3 * WALK_ROWS_MAX + 1))
        view = await a_view([*first, *rows, *last])
        found: list[Any] = []
        wanted = WantedRows(None, None, None, 10, is_reversed=reverse)
        assert append_cached(found, view, wanted) == layout.WALKED
        assert [row.key for row in found] == [(last if reverse else first)[0].key]
        keys = [row.key async for row in scan_of(view, reverse=reverse, limit=10)]
        assert keys == sorted([first[0].key, last[0].key], reverse=reverse)

    anyio.run(run)


def test_a_seek_after_the_limit_was_reached_leaves_a_range_to_check() -> None:
    """A serializable transaction asks for it at the commit."""

    async def run() -> None:
        async with shale.Db.open("db", store=MemoryStore()) as db:
            for number in range(200):
                await db.put(b"k%06d" % number, b"v")
            transaction = await db.transaction(isolation="serializable")
            scan = transaction.scan(limit=3)
            for _ in range(3):
                await scan.__anext__()
            await scan.seek(b"k000100")
            transaction.put(b"other", b"v")
            await db.put(b"z", b"v")
            with pytest.raises(shale.TransactionConflict):
                await transaction.commit()

    anyio.run(run)


@pytest.mark.anyio
async def test_a_scan_in_another_thread_leaves_the_answer_alone() -> None:
    """Each thread has its own: the interpreter lock is free between a call and the reading of its answer."""
    shelf = Shelf(cache_bytes=16 << 20)
    views = [SstView.identity(await shelf.sst(entries_of(range(number, 300, 3)))) for number in range(3)]
    wide, narrow = (
        SuperVersion(Manifest(tree=Tree(l0=tuple(l0)), last_l0_seq=Seq(10)), [], shelf.reader, ReadOptions())
        for l0 in (views, views[:1])
    )
    wanted = WantedRows(None, None, None, 10)
    append_cached([], narrow, wanted)
    before = last_misses(narrow)
    await anyio.to_thread.run_sync(lambda: append_cached([], wide, wanted))
    assert last_misses(narrow) == before
    append_cached([], wide, wanted)
    assert last_misses(wide) != before
