"""Scans in both directions against a sorted list: bounds, limits, batches, columns, Arrow and seeking."""

from random import Random

import anyio
import pytest

from shale.concurrency.read_ahead import ReadAhead
from shale.engine.memtable.memtable import Memtable
from shale.engine.read.lookup import get
from shale.engine.read.multi_get import get_many
from shale.engine.read.read_options import ReadOptions
from shale.engine.read.reads import row_of
from shale.engine.read.super_version import SuperVersion
from shale.engine.scan.scan import Scan
from shale.errors import InvalidRequestError
from shale.kernels.dispatch import use_kernels
from shale.kernels.rows import entries_from_rows, rows_from_entries
from shale.types import (
    EVERYTHING,
    FLAG_CREATE_TS,
    FLAG_EXPIRE_TS,
    FLAG_MERGE,
    FLAG_TOMBSTONE,
    Entry,
    KeyRange,
    Manifest,
    Row,
    RunId,
    Segment,
    Seq,
    SortedRun,
    Tree,
    excluded,
    included,
)
from tests.plain_kernels import without_kernels
from tests.unit.engine.read.test_super_version import Database, concatenate
from tests.unit.engine.reading import Shelf, in_order, scan_of

OPTIONS = ReadOptions(merge_operator=concatenate, read_ahead_bytes=2000)


async def a_view(seed: int) -> tuple[Database, SuperVersion]:
    rng = Random(seed)
    database = Database(rng, merges=seed % 2 == 0)
    shelf = Shelf(cache_bytes=rng.choice((0, 20_000, 1 << 20)))
    manifest, tables = await database.place(shelf)
    return database, SuperVersion(manifest, tables, shelf.reader, OPTIONS)


@pytest.mark.parametrize("kernels", [False, True], ids=["plain", "kernels"])
@pytest.mark.parametrize("seed", range(25))
def test_backward_is_forward_reversed(seed: int, kernels: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not kernels:
        without_kernels(monkeypatch)

    async def run() -> None:
        database, view = await a_view(seed)
        rng = database.rng
        for max_seq in (None, rng.randrange(len(database.history) + 1)):
            rows = [row async for row in scan_of(view, max_seq=max_seq)]
            assert [row async for row in scan_of(view, max_seq=max_seq, reverse=True)] == rows[::-1]
            for _ in range(4):
                low, high = sorted(rng.choices([*database.keys, b"k", b"zz"], k=2))
                limit = rng.choice((None, 0, 1, 7))
                part = scan_of(
                    view, KeyRange(included(low), excluded(high)), max_seq=max_seq, limit=limit, reverse=True
                )
                expected = [row for row in rows if low <= row.key < high][::-1][:limit]
                assert [row async for row in part] == expected

    anyio.run(run)


@pytest.mark.parametrize("seed", range(25))
def test_reading_blocks_shows_what_reading_columns_shows(seed: int) -> None:
    if not use_kernels():
        pytest.skip("there are no compiled kernels")

    async def run() -> None:
        database, view = await a_view(seed)
        rng = database.rng
        for _ in range(6):
            max_seq = rng.choice((None, rng.randrange(len(database.history) + 1)))
            now_ms = rng.choice((None, rng.randrange(2000)))
            low, high = sorted(rng.choices([*database.keys, b"k", b"zz"], k=2))
            part = rng.choice((EVERYTHING, KeyRange(included(low), excluded(high))))
            blocks = await columns(scan_of(view, part, max_seq=max_seq, now_ms=now_ms))
            assert await columns(scan_of(view, part, max_seq=max_seq, now_ms=now_ms, limit=1 << 30)) == blocks
            rows = [row async for row in scan_of(view, part, max_seq=max_seq, now_ms=now_ms, limit=1 << 30)]
            assert [row_of(entry) for entry in blocks] == rows

    anyio.run(run)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_every_way_to_take_rows_gives_the_same(seed: int, reverse: bool) -> None:
    async def run() -> None:
        database, view = await a_view(seed)
        rng = database.rng
        limit = rng.choice((None, 9, 100))

        def scan() -> Scan:
            return scan_of(view, reverse=reverse, limit=limit)

        rows = [row async for row in scan()]
        size = rng.choice((1, 3, 1000))
        batches = [batch async for batch in scan().batches(size)]
        assert [row for batch in batches for row in batch] == rows
        assert [len(batch) for batch in batches[:-1]] == [size] * (len(batches) - 1)
        assert [(entry.key, entry.value, entry.seq) for entry in await columns(scan())] == [row[:3] for row in rows]
        lists = [items async for items in scan().items(size)]
        assert [item for items in lists for item in items] == [(row.key, row.value) for row in rows]
        assert [len(items) for items in lists[:-1]] == [size] * (len(lists) - 1)
        mixed, one = scan(), []
        async for row in mixed:
            one.append(row)
            if len(one) == 3:
                break
        one += await mixed.next_batch(2)
        rest = await columns(mixed)
        assert [row[:3] for row in one] + [(entry.key, entry.value, entry.seq) for entry in rest] == [
            row[:3] for row in rows
        ]

    anyio.run(run)


async def columns(scan: Scan) -> list[Entry]:
    entries: list[Entry] = []
    while (rows := await scan.columns()) is not None:
        entries += entries_from_rows(rows)
    return entries


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("seed", range(30))
def test_seeking_goes_on_at_a_key_and_only_onwards(seed: int, reverse: bool) -> None:
    """As in SlateDB: not outside the range, and not back to rows that were given; rows once passed stay passed."""

    async def run() -> None:
        database, view = await a_view(seed)
        rng = database.rng
        low, high = sorted(rng.choices([*database.keys, b"k", b"zz"], k=2))
        key_range = KeyRange(included(low), excluded(high))
        limit = rng.choice((None, None, 5, 40))
        left = list(await scan_of(view, key_range, reverse=reverse).next_batch(10_000))
        scan = scan_of(view, key_range, reverse=reverse, limit=limit)
        given: list[Row] = []
        last: bytes | None = None
        for _ in range(rng.randrange(60)):
            draw = rng.random()
            if draw < 0.4:
                expected = left.pop(0) if left and (limit is None or len(given) < limit) else None
                if expected is None:
                    with pytest.raises(StopAsyncIteration):
                        await anext(scan)
                    break
                row = await anext(scan)
                assert row == expected
                given.append(row)
                last = row.key
            elif draw < 0.55:
                count = rng.choice((1, 4, 600))
                room = count if limit is None else min(count, limit - len(given))
                batch = await scan.next_batch(count)
                assert batch == left[:room]
                del left[:room]
                given += batch
                last = batch[-1].key if batch else last
            else:
                key = rng.choice([*database.keys, low, high, b"k5", b"k", b"zzz"])
                is_behind = last is None or (key < last if reverse else key > last)
                if not key_range.contains(key) or not is_behind:
                    with pytest.raises(InvalidRequestError, match="cannot seek"):
                        await scan.seek(key)
                    continue
                await scan.seek(key)
                left = [row for row in left if (row.key <= key if reverse else row.key >= key)]
        assert len(given) == len({row.key for row in given})

    anyio.run(run)


def test_hidden_is_what_has_expired() -> None:
    """An expired value hides what is below it, and an expired operand is as if it were not there."""
    create, expire = FLAG_CREATE_TS, FLAG_CREATE_TS | FLAG_EXPIRE_TS

    async def run() -> None:
        shelf = Shelf()
        old = [Entry(b"a", b"old", 1, create, 1), Entry(b"m", b"base", 2, create, 1), Entry(b"z", b"", 3, create, 1)]
        new = [
            Entry(b"a", b"new", 4, expire, 1, 50),
            Entry(b"m", b"+1", 5, expire | FLAG_MERGE, 1, 50),
            Entry(b"m", b"+2", 6, create | FLAG_MERGE, 1),
            Entry(b"n", b"lives", 7, expire, 1, 51),
        ]
        manifest = Manifest(tree=Tree(l0=(await shelf.view(in_order(old)),)), last_l0_seq=Seq(3))
        view = SuperVersion(manifest, (Memtable.from_rows(rows_from_entries(in_order(new))),), shelf.reader, OPTIONS)
        shown = {b"a": b"new", b"m": b"base+1+2", b"n": b"lives", b"z": b""}
        hidden = {b"m": b"base+2", b"n": b"lives", b"z": b""}
        for now_ms, expected in ((None, shown), (49, shown), (50, hidden)):
            for reverse in (False, True):
                rows = [(row.key, row.value) async for row in scan_of(view, now_ms=now_ms, reverse=reverse)]
                assert rows == sorted(expected.items(), reverse=reverse)
            keys = [b"a", b"m", b"n", b"z", b"absent"]
            assert await get_many(view, keys, now_ms=now_ms) == [expected.get(key) for key in keys]
            for key in keys:
                entry = await get(view, key, now_ms=now_ms)
                assert (None if entry is None else entry.value) == expected.get(key)

    anyio.run(run)


def test_segments_and_what_lies_between_them_backward() -> None:
    """Memtables may hold keys of segments that have no tree yet; a root tree may be in use besides."""

    async def run() -> None:
        shelf = Shelf()
        names = (b"aa", b"bb", b"c", b"\xff")
        rows = {name: [Entry(name + b"%d" % n, name, n + 1, 0) for n in range(3)] for name in names}
        root = [Entry(key, b"root", 4, 0) for key in (b"a", b"ab", b"b", b"d", b"z")]
        table = [Entry(key, b"table", 10, 0) for key in (b"A", b"aa1", b"ab", b"bc", b"y", b"\xff\xff")]
        manifest = Manifest(
            tree=Tree(l0=(await shelf.view(root),)),
            segments=tuple([Segment(prefix=n, tree=Tree(l0=(await shelf.view(rows[n]),))) for n in names]),
            segment_extractor_name="x",
            last_l0_seq=Seq(9),
        )
        view = SuperVersion(manifest, (Memtable.from_rows(rows_from_entries(table)),), shelf.reader, OPTIONS)
        model = {entry.key: entry.value for part in (root, *rows.values(), table) for entry in part}
        forward = [(row.key, row.value) async for row in scan_of(view)]
        assert forward == sorted(model.items())
        assert [(row.key, row.value) async for row in scan_of(view, reverse=True)] == forward[::-1]
        for start in sorted(model):
            for stop in sorted(model):
                part = scan_of(view, KeyRange(included(start), excluded(stop)), reverse=True)
                assert [row.key async for row in part] == [key for key, _ in forward[::-1] if start <= key < stop]

    anyio.run(run)


def test_a_key_with_versions_in_many_blocks_backward() -> None:
    """No version of a key may be overlooked, though reading backward meets the oldest ones first."""

    async def run() -> None:
        shelf = Shelf(block_size_bytes=1024)
        versions = [Entry(b"hot", bytes(700) + b"%d" % seq, seq, FLAG_CREATE_TS, 1) for seq in range(1, 40)]
        others = [Entry(b"%s%d" % (name, n), b"x" * 300, 1, 0) for name in (b"a", b"z") for n in range(9)]
        l0 = await shelf.view(in_order([*versions, *others]))
        options = ReadOptions(read_ahead_bytes=1000)
        view = SuperVersion(Manifest(tree=Tree(l0=(l0,)), last_l0_seq=Seq(50)), (), shelf.reader, options)
        for max_seq in (None, 20, 1):
            rows = [row async for row in scan_of(view, max_seq=max_seq, reverse=True)]
            assert [row.key for row in rows] == sorted({entry.key for entry in (*versions, *others)}, reverse=True)
            (hot,) = [row for row in rows if row.key == b"hot"]
            assert hot.seq == (max_seq or 39)

    anyio.run(run)


@pytest.mark.parametrize("fetch_tasks", [1, 2, 7])
def test_reads_at_the_same_time_change_no_row(fetch_tasks: int) -> None:
    async def run() -> None:
        shelf = Shelf(cache_bytes=0)
        old = [Entry(b"%05d" % n, b"old", 1, 0) for n in range(3000)]
        new = [Entry(b"%05d" % n, b"new" * 30, 2, 0) for n in range(0, 3000, 3)]
        tree = Tree(l0=(await shelf.view(new),), compacted=(SortedRun(id=RunId(1), ssts=(await shelf.view(old),)),))
        wanted = [(key, b"new" * 30 if int(key) % 3 == 0 else b"old") for key in (entry.key for entry in old)]
        async with anyio.create_task_group() as tasks:
            options = ReadOptions(read_ahead_bytes=4000, read_ahead=ReadAhead(tasks))
            view = SuperVersion(Manifest(tree=tree, last_l0_seq=Seq(2)), (), shelf.reader, options)
            for reverse in (False, True):
                for limit in (None, 500):
                    scan = scan_of(view, reverse=reverse, fetch_tasks=fetch_tasks, limit=limit)
                    found = [(row.key, row.value) async for row in scan]
                    assert found == (wanted[::-1] if reverse else wanted)[:limit]
                    scan = scan_of(view, reverse=reverse, fetch_tasks=fetch_tasks)
                    assert sum([len(rows) async for rows in scan.batches(700)]) == 3000

    anyio.run(run)


def test_a_deleted_stretch_is_passed_backward() -> None:
    async def run() -> None:
        shelf = Shelf()
        values = [Entry(b"%04d" % n, b"v", 1, 0) for n in range(2000)]
        deleted = [Entry(b"%04d" % n, b"", 2, FLAG_TOMBSTONE) for n in range(3, 1999)]
        tree = Tree(l0=(await shelf.view(deleted), await shelf.view(values)))
        view = SuperVersion(Manifest(tree=tree, last_l0_seq=Seq(2)), (), shelf.reader, OPTIONS)
        assert [row.key async for row in scan_of(view, reverse=True)] == [b"1999", b"0002", b"0001", b"0000"]
        assert [row.key async for row in scan_of(view, reverse=True, limit=2)] == [b"1999", b"0002"]

    anyio.run(run)


def test_few_rows_from_the_end_cost_few_bytes() -> None:
    """A limited scan backward does not read whole runs, and an unlimited one makes one request per read-ahead."""

    async def run() -> None:
        shelf = Shelf(cache_bytes=0)
        sst = await shelf.view([Entry(b"%06d" % n, bytes(100), 1, 0) for n in range(20_000)])
        size = sst.sst.info.data_len
        view = SuperVersion(Manifest(tree=Tree(l0=(sst,)), last_l0_seq=Seq(1)), (), shelf.reader, ReadOptions())
        assert [row.key async for row in scan_of(view, reverse=True, limit=3)] == [b"019999", b"019998", b"019997"]
        assert sum(end - start for _, start, end in shelf.store.reads[1:]) < size / 50
        shelf.store.reads.clear()
        whole = scan_of(view, reverse=True, read_ahead_bytes=size // 4)
        assert len(await columns(whole)) == 20_000
        assert len(shelf.store.reads) <= 1 + 4

    anyio.run(run)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_arrow_holds_what_rows_hold(seed: int, reverse: bool) -> None:
    async def run() -> None:
        _, view = await a_view(seed)
        rows = [row async for row in scan_of(view, reverse=reverse)]
        table = await scan_of(view, reverse=reverse).to_arrow()
        assert [str(field.type) for field in table.schema] == [
            "binary", "binary", "uint64", "timestamp[ms, tz=UTC]", "timestamp[ms, tz=UTC]",
        ]  # fmt: skip
        assert table.schema.names == list(Row._fields)
        numbers = [table[name].cast("int64").to_pylist() for name in ("create_ts", "expire_ts")]
        found = zip(*(table[name].to_pylist() for name in ("key", "value", "seq")), *numbers, strict=True)
        assert list(found) == [tuple(row) for row in rows]
        table.validate(full=True)
        batches = [batch async for batch in scan_of(view, reverse=reverse, limit=5).arrow_batches()]
        assert sum(batch.num_rows for batch in batches) == min(5, len(rows))
        nothing = scan_of(view, KeyRange(excluded(b"zz"), excluded(b"zzz")))
        assert (await nothing.to_arrow()).num_rows == 0

    anyio.run(run)


def test_a_closed_scan_has_no_more_rows() -> None:
    async def run() -> None:
        _, view = await a_view(3)
        scan = scan_of(view)
        await anext(scan)
        assert view.pin.is_referenced
        scan.close()
        assert not view.pin.is_referenced
        assert [row async for row in scan] == []
        assert await scan.columns() is None

    anyio.run(run)


@pytest.mark.parametrize("reverse", [False, True])
def test_batches_end_where_they_have_enough_bytes(reverse: bool) -> None:
    async def run() -> None:
        for seed in range(6):
            _, view = await a_view(seed)
            rows = [row async for row in scan_of(view, reverse=reverse)]
            for bytes_max in (1, 300, 5_000):
                scan = scan_of(view, reverse=reverse)
                batches = []
                while batch := await scan.next_batch(40, bytes_max=bytes_max):
                    batches.append(batch)
                assert [row for batch in batches for row in batch] == rows
                for batch in batches:
                    assert sum(len(row.value) for row in batch[:-1]) <= bytes_max
                assert bytes_max < 5_000 or len(rows) < 9 or len(batches) < len(rows)

    anyio.run(run)
