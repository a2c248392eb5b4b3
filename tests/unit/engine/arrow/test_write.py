"""Writes of Arrow columns: accepted types, refused types, and the same result as row by row."""

from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import anyio
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shale
from shale.errors import InvalidRequestError, InvalidSegmentPrefix, TransactionConflict
from shale.format.sst.filter_policy import FixedPrefix
from shale.store.memory import MemoryStore
from tests.examples import examples


def run(scenario: Callable[[MemoryStore], Awaitable[None]]) -> None:
    anyio.run(scenario, MemoryStore())


def open_db(store: MemoryStore, **chosen: Any) -> Any:
    return shale.Db.open("db", store=store, **{"flush_interval": None, **chosen})


def table_of(rows: list[tuple[bytes, bytes]], kind: Any = None) -> Any:
    keys, values = zip(*rows, strict=True) if rows else ((), ())
    kind = kind or pa.binary()
    return pa.table({"key": pa.array(keys, kind), "value": pa.array(values, kind)})


async def contents(db: Any) -> list[tuple[bytes, bytes, int]]:
    return [(row.key, row.value, row.seq) async for row in db.scan()]


ROWS = [(b"b", b"1"), (b"a", b"2"), (b"c", b"3"), (b"a", b"4"), (b"b\x00", b"")]
SOURCES = {
    "table": table_of(ROWS),
    "large binary": table_of(ROWS, pa.large_binary()),
    "views": table_of(ROWS).cast(pa.schema({"key": pa.binary_view(), "value": pa.binary_view()})),
    "dictionary": pa.table({name: table_of(ROWS)[name].dictionary_encode() for name in ("key", "value")}),
    "dictionary of views": pa.table(
        {
            name: pa.DictionaryArray.from_arrays(
                pa.array(range(6)), pa.array([b"z", *(row[place] for row in ROWS)], pa.binary_view())
            )
            for place, name in enumerate(("key", "value"))
        }
    ).slice(1),
    "batch": table_of(ROWS).to_batches()[0],
    "chunks": pa.concat_tables([table_of(ROWS[:2]), table_of(ROWS[2:3]), table_of([]), table_of(ROWS[3:])]),
    "slices": table_of([(b"z", b"z"), *ROWS, (b"z", b"z")]).slice(1, 5),
    "reader": table_of(ROWS).to_reader(max_chunksize=2),
    "list of batches": table_of(ROWS).to_batches(max_chunksize=2),
    "generator of tables": (table_of([row]) for row in ROWS),
    "text": pa.table(
        {"key": ["b", "a", "c", "a", "b\x00"], "value": pa.array(["1", "2", "3", "4", ""], pa.large_string())}
    ),
    "more columns": table_of(ROWS).append_column("other", pa.array(range(5))),
}


@pytest.mark.parametrize("name", SOURCES)
def test_of_rows_with_one_key_the_last_counts_whatever_they_come_in(name: str) -> None:
    async def scenario(store: MemoryStore) -> None:
        async with open_db(store) as db:
            await db.put(b"a", b"old")
            handle = await db.write_arrow(SOURCES[name])
            expected = [(b"a", b"4", 2), (b"b", b"1", 2), (b"b\x00", b"", 2), (b"c", b"3", 2)]
            assert (handle.seq, db.status.last_seq) == (2, 2)
            assert await contents(db) == expected
            assert await db.get_many([b"a", b"b", b"b\x00", b"x"]) == [b"4", b"1", b"", None]
        async with open_db(store) as db:
            assert await contents(db) == expected

    run(scenario)


def test_columns_of_fixed_width() -> None:
    async def scenario(store: MemoryStore) -> None:
        keys = pa.array([b"zz", b"cc", b"aa", b"bb"], pa.binary(2))
        values = pa.array([b"", b"", b"", b""], pa.binary(0))
        async with open_db(store) as db:
            await db.write_arrow(pa.table({"k": keys, "v": values}).slice(1), key="k", value="v")
            assert await contents(db) == [(b"aa", b"", 1), (b"bb", b"", 1), (b"cc", b"", 1)]

    run(scenario)


STEP = 16_384
MANY = [b"%08d" % number for number in range(2 * STEP + 5)]


@pytest.mark.parametrize("chunks", [[], [5], [STEP, STEP + 7]])
@pytest.mark.parametrize("place", [None, 1, STEP - 1, STEP, STEP + 1, 2 * STEP + 4])
def test_one_row_of_many_may_be_out_of_order(place: int | None, chunks: list[int]) -> None:
    """Columns are copied in several steps: the order is checked within a step and between two."""

    async def scenario(store: MemoryStore) -> None:
        keys = list(MANY)
        if place is not None:
            keys[place] = keys[place - 1]
        rows = [(key, b"%d" % number) for number, key in enumerate(keys)]
        cuts = [0, *chunks, len(rows)]
        source = pa.concat_tables([table_of(rows[first:end]) for first, end in pairwise(cuts)])
        async with open_db(store) as db:
            await db.write_arrow(source)
            assert await contents(db) == [(key, value, 1) for key, value in dict(rows).items()]

    run(scenario)


@pytest.mark.parametrize("place", [STEP - 1, STEP, 2 * STEP + 4])
def test_one_key_of_many_may_be_impossible(place: int) -> None:
    async def scenario(store: MemoryStore) -> None:
        rows = [(key, b"") for key in MANY]
        rows[place] = b"", b""
        async with open_db(store) as db:
            with pytest.raises(InvalidRequestError, match=f"row {place} is empty"):
                await db.write_arrow(table_of(rows))
            assert db.status.last_seq == 0

    run(scenario)


def test_memory_of_the_caller_is_not_kept() -> None:
    async def scenario(store: MemoryStore) -> None:
        memory = bytearray(b"aabbcc")
        column = pa.Array.from_buffers(pa.binary(2), 3, [None, pa.py_buffer(memory)])
        async with open_db(store) as db:
            await db.write_arrow(pa.table({"key": column, "value": column}))
            memory[:] = b"xxyyzz"
            assert await contents(db) == [(b"aa", b"aa", 1), (b"bb", b"bb", 1), (b"cc", b"cc", 1)]

    run(scenario)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        pytest.param(table_of([]), "no rows", id="nothing"),
        pytest.param([], "no rows", id="no batches"),
        pytest.param(table_of([(b"a", b""), (b"", b"x")]), "row 1 is empty", id="empty key"),
        pytest.param(table_of([(b"a", b""), (b"a" * 70_000, b"x")]), "row 1 is too long", id="long key"),
        pytest.param(table_of([(b"a" * 65_536, b"x")]), "row 0 is too long", id="only a long key"),
        pytest.param(pa.chunked_array([[b"a"]]), "tables or batches", id="a column"),
        pytest.param(pa.table({"key": pa.array([b"a", None]), "value": [b"", b""]}), "1 nulls", id="null key"),
        pytest.param(pa.table({"key": [b"a"], "value": pa.array([None], pa.binary())}), "1 nulls", id="null value"),
        pytest.param(pa.table({"key": [b"a"], "values": [b"a"]}), "'value'.*key, values", id="no such column"),
        pytest.param(pa.table({"key": [1], "value": [b"a"]}), "'key' is int64", id="numbers"),
        pytest.param("text", "not str", id="text"),
        pytest.param([(b"a", b"b")], "not tuple", id="tuples"),
        pytest.param(17, "not int", id="a number"),
    ],
)
def test_what_is_refused_leaves_nothing(source: Any, message: str) -> None:
    async def scenario(store: MemoryStore) -> None:
        async with open_db(store) as db:
            with pytest.raises(InvalidRequestError, match=message):
                await db.write_arrow(source)
            assert (db.status.last_seq, db.status.unflushed_bytes) == (0, 0)

    run(scenario)


@pytest.mark.fault("F2.20")
def test_one_commit_is_one_file_and_comes_back_whole() -> None:
    """A batch of columns may be far larger than a WAL file, between other writes."""

    async def scenario(store: MemoryStore) -> None:
        rows = [(b"%05d" % n, bytes(50)) for n in range(3000)]
        db = await open_db(store, l0_sst_size_bytes=20_000, max_unflushed_bytes=2**30)
        await db.put(b"before", b"")
        handle = await db.write_arrow(table_of(rows))
        await db.put(b"after", b"")
        await handle.durable()
        await db.flush("wal")
        await db.close("none")
        async with open_db(store) as db:
            assert await contents(db) == [
                *((key, value, 2) for key, value in rows), (b"after", b"", 3), (b"before", b"", 1),
            ]  # fmt: skip

    run(scenario)


def test_commits_of_some_rows_stay_within_memory() -> None:
    async def scenario(store: MemoryStore) -> None:
        db = await open_db(store, flush_interval="1ms", l0_sst_size_bytes=5_000, max_unflushed_bytes=30_000,
                           l0_max_ssts=1000, l0_max_ssts_per_key=1000)  # fmt: skip
        levels: list[int] = []

        def batches() -> Any:
            for number in range(40):
                levels.append(db.status.unflushed_bytes)
                yield table_of([(b"%05d" % (number * 50 + n), bytes(20)) for n in range(50)])

        handle = await db.write_arrow(batches(), rows_per_commit=30)
        assert handle.seq == db.status.last_seq == 67  # 2,000 rows
        assert max(levels) < 30_000 + 30 * (5 + 20 + 28) * 2
        assert len(await contents(db)) == 2000
        with pytest.raises(InvalidRequestError, match="rows_per_commit"):
            await db.write_arrow(table_of([(b"%05d" % n, bytes(100)) for n in range(1000)]))
        with pytest.raises(InvalidRequestError, match="not positive"):
            await db.write_arrow(table_of(ROWS), rows_per_commit=0)
        await db.close()

    run(scenario)


def test_lifetimes() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with open_db(store, default_ttl="1h") as db:
            handle = await db.write_arrow(table_of([(b"a", b"")]), ttl="10s")
            row = await db.get_row(b"a")
            assert row.expire_ts == handle.create_ts + 10_000
            handle = await db.write_arrow(table_of([(b"a", b"")]))
            row = await db.get_row(b"a")
            assert (row.create_ts, row.expire_ts) == (handle.create_ts, handle.create_ts + 3_600_000)

    run(scenario)


def test_columns_go_to_their_segments() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with open_db(store, segment_extractor=FixedPrefix("one", 1)) as db:
            await db.write_arrow(table_of(ROWS))
            await db.flush("memtable")
            assert [segment.prefix for segment in db.status.manifest.segments] == [b"a", b"b", b"c"]
            assert len(await contents(db)) == 4

    run(scenario)


def test_columns_are_refused_as_rows_are_when_segments_would_nest() -> None:
    class UpToLast:
        name = "up to the last colon"

        def prefix_len(self, key: bytes) -> int | None:
            return key.rfind(b":") + 1 or None

        def scan_prefix_len(self, prefix: bytes) -> int | None:
            return self.prefix_len(prefix)

    async def scenario(store: MemoryStore) -> None:
        async with open_db(store, segment_extractor=UpToLast()) as db:
            with pytest.raises(InvalidSegmentPrefix):
                await db.write_arrow(table_of([(b"a:1", b""), (b"a:b:1", b"")]))
            assert (db.status.segments, await contents(db)) == ([], [])
            await db.write_arrow(table_of([(b"a:1", b""), (b"b:1", b"")]))
            assert db.status.segments == [b"a:", b"b:"]

    run(scenario)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 20), st.binary(max_size=3)),
        st.tuples(st.just("delete"), st.integers(0, 20), st.none()),
        st.tuples(st.just("arrow"), st.lists(st.integers(0, 20), min_size=1, max_size=12), st.binary(max_size=3)),
        st.tuples(st.sampled_from(["wal", "memtable", "reopen", "read"]), st.none(), st.none()),
    ),
    max_size=80,
)


@settings(max_examples=examples(30), deadline=None)
@given(STEPS)
def test_mixed_with_other_writes(steps: list[tuple[str, Any, Any]]) -> None:
    async def scenario(store: MemoryStore) -> None:
        model: dict[bytes, tuple[bytes, int]] = {}
        seq = 0
        db = await open_db(store)
        for step, keys, value in steps:
            if step in ("put", "delete", "arrow"):
                seq += 1
            if step == "put":
                await db.put(b"%d" % keys, value)
                model[b"%d" % keys] = (value, seq)
            elif step == "delete":
                await db.delete(b"%d" % keys)
                model.pop(b"%d" % keys, None)
            elif step == "arrow":
                rows = [(b"%d" % key, value + b"%d" % place) for place, key in enumerate(keys)]
                await db.write_arrow(table_of(rows))
                model |= {key: (each, seq) for key, each in rows}
            elif step == "reopen":
                await db.flush("wal")
                await db.close("none")
                db = await open_db(store)
            elif step == "read":
                assert [await db.get(b"%d" % n) for n in range(21)] == [
                    model.get(b"%d" % n, (None,))[0] for n in range(21)
                ]
            else:
                await db.flush(step)
        assert await contents(db) == [(key, *model[key]) for key in sorted(model)]
        await db.close()

    run(scenario)


def test_snapshots_and_transactions_see_columns_as_any_commit() -> None:
    async def scenario(store: MemoryStore) -> None:
        async with open_db(store) as db:
            await db.put(b"a", b"old")
            snapshot = await db.snapshot()
            writes, reads, scans, apart = [
                await db.transaction(isolation)
                for isolation in ("snapshot", "serializable", "serializable", "serializable")
            ]
            writes.put(b"c", b"mine")
            assert await reads.get(b"x") is None
            assert [row.key async for row in scans.scan(start=b"b", stop=b"bb")] == []
            assert [row.key async for row in apart.scan(start=b"d")] == []
            await db.write_arrow(table_of([*ROWS, (b"x", b"")]))
            assert await contents(snapshot) == [(b"a", b"old", 1)]
            assert await writes.get(b"c") == b"mine"
            for transaction in (reads, scans):
                transaction.put(b"z", b"")
            apart.put(b"zz", b"")
            for transaction in (writes, reads, scans, apart):
                with pytest.raises(TransactionConflict):
                    await transaction.commit()
            inside = await db.transaction("serializable")
            assert await inside.get(b"x") == b""
            inside.put(b"x", b"new")
            await inside.commit()
            assert await db.get(b"x") == b"new"
            await snapshot.close()

    run(scenario)


def test_operands_fold_over_columns() -> None:
    async def scenario(store: MemoryStore) -> None:
        settings: dict[str, Any] = {"merge_operator": "concatenate"}
        async with open_db(store, **settings) as db:
            await db.merge(b"a", b"1")
            await db.write_arrow(table_of([(b"a", b"2"), (b"b", b"3")]))
            await db.merge(b"a", b"4")
            await db.merge(b"b", b"5")
            assert [row[:2] for row in await contents(db)] == [(b"a", b"24"), (b"b", b"35")]
            assert await db.get_many([b"a", b"b"]) == [b"24", b"35"]
            await db.flush("memtable")
            assert await db.get(b"a") == b"24"

    run(scenario)
