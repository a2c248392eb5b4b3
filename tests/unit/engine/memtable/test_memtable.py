"""The memtable against a plain list of entries."""

from collections.abc import Callable
from typing import Any, TypeVar

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shale.engine.memtable.memtable import Memtable
from shale.engine.memtable.sorted_log import INLINE_ROWS_MAX
from shale.engine.memtable.sorted_part import merge_parts, needs_merge
from shale.kernels.rows import entries_from_rows, rows_from_entries
from shale.types import FLAG_CREATE_TS, FLAG_EXPIRE_TS, FLAG_MERGE, FLAG_TOMBSTONE, Entry, KeyRange, excluded, included

T = TypeVar("T")
KEYS = st.sampled_from([b"a", b"aa", b"ab", b"b", b"b\x00", b"c" * 20, b"\xff", b"\xff\xff"])
KINDS = st.sampled_from([0, FLAG_TOMBSTONE, FLAG_MERGE, FLAG_EXPIRE_TS])
OPS = st.lists(st.tuples(KEYS, KINDS, st.binary(max_size=5), st.booleans()), max_size=40)


def build(ops: list[tuple[bytes, int, bytes, bool]], *, scans: bool = True) -> tuple[Memtable, list[Entry]]:
    table, entries = Memtable(), []
    for seq, (key, kind, value, scan) in enumerate(ops, start=1):
        data = b"" if kind == FLAG_TOMBSTONE else value
        expire = seq * 100 if kind == FLAG_EXPIRE_TS else 0
        entry = Entry(key, data, seq, kind | FLAG_CREATE_TS, seq * 10, expire)
        table.append(entry)
        entries.append(entry)
        if scan and scans:
            table.sorted_parts()
    return table, entries


def in_order(entries: list[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda entry: (entry.key, -entry.seq))


def check_get(table: Memtable, entries: list[Entry], key: bytes, max_seq: int | None) -> None:
    """Check that ``get`` returns the newest versions, at least down to the first that is no merge operand."""
    versions = [entry for entry in reversed(entries) if entry.key == key and (max_seq is None or entry.seq <= max_seq)]
    found = list(table.get(key, max_seq))
    assert found == versions[: len(found)]
    if len(found) < len(versions):
        assert found
        assert not found[-1].is_merge


@given(ops=OPS)
def test_rows_are_sorted_and_complete_however_often_they_were_looked_at(ops) -> None:
    table, entries = build(ops)
    assert entries_from_rows(table.rows()) == in_order(entries)
    assert len(table) == len(entries)


@given(ops=OPS, frozen=st.booleans(), key=KEYS, max_seq=st.none() | st.integers(0, 45))
def test_get_gives_the_newest_versions_first(ops, frozen: bool, key: bytes, max_seq: int | None) -> None:
    table, entries = build(ops)
    if frozen:
        table.adopt(table.freeze())
    check_get(table, entries, key, max_seq)


@given(before=OPS, ops=OPS, key=KEYS, data=st.data())
def test_operands_above_replayed_rows_are_found_without_sorting(before, ops, key: bytes, data) -> None:
    entries = build(before)[1]
    table = Memtable.from_rows(rows_from_entries(entries), writable=True)
    for seq, (each, kind, value, _) in enumerate(ops, start=len(before) + 1):
        entry = Entry(each, b"" if kind == FLAG_TOMBSTONE else value, seq, kind | FLAG_CREATE_TS, seq * 10, 0)
        entry = entry._replace(expire_ts=seq * 100 if kind == FLAG_EXPIRE_TS else 0)
        table.append(entry)
        entries.append(entry)
    max_seq = data.draw(st.none() | st.integers(0, len(entries)))
    check_get(table, entries, key, max_seq)


@given(ops=OPS, columns=st.sets(st.integers(0, 40)), frozen=st.booleans(), low=KEYS, high=KEYS, seq=st.integers(0, 45))
def test_what_was_written_after_a_seq(ops, columns: set[int], frozen: bool, low, high, seq: int) -> None:
    table, entries = Memtable(), []
    for number, (key, kind, value, _) in enumerate(ops, start=1):
        entries.append(Entry(key, value, number, (kind & FLAG_MERGE) | FLAG_CREATE_TS, number))
        if number in columns:
            table.append_columns(rows_from_entries(entries[-1:]))
        else:
            table.append(entries[-1])
    if frozen:
        table.adopt(table.freeze())
    key_range = KeyRange(included(low), excluded(high))
    written = [(e.key, e.seq) for e in entries if e.seq > seq and low <= e.key < high]
    assert sorted(table.writes_after(seq, key_range)) == sorted(written)
    assert table.last_seq_of(low) == max((e.seq for e in entries if e.key == low), default=0)
    assert sorted(table.seqs_of(low)) == [e.seq for e in entries if e.key == low]


@given(ops=OPS, low=KEYS, high=KEYS, frozen=st.booleans())
def test_a_range_shows_its_keys_and_no_others(ops, low: bytes, high: bytes, frozen: bool) -> None:
    table, entries = build(ops)
    if frozen:
        table.adopt(table.freeze())
    for key_range in (
        KeyRange.half_open(low, high),
        KeyRange(excluded(low), included(high)),
        KeyRange.with_prefix(low),
    ):
        wanted = in_order([entry for entry in entries if key_range.contains(entry.key)])
        assert entries_from_rows(table.rows(key_range)) == wanted


@given(ops=OPS, more=OPS)
def test_a_table_that_begins_with_replayed_rows_takes_newer_ones(ops, more) -> None:
    _, entries = build(ops, scans=False)
    table = Memtable.from_rows(rows_from_entries(entries), writable=True)
    for seq, (key, _, value, _) in enumerate(more, start=len(entries) + 1):
        table.append(Entry(key, value, seq, FLAG_CREATE_TS, 7))
        entries.append(Entry(key, value, seq, FLAG_CREATE_TS, 7, 0))
    assert entries_from_rows(table.rows()) == in_order(entries)
    assert table.last_seq == len(entries)
    assert table.size_bytes == sum(len(e.key) + len(e.value) + 28 for e in entries)
    for key in {entry.key for entry in entries}:
        assert table.get(key)[0] == next(entry for entry in reversed(entries) if entry.key == key)


def test_what_a_scan_holds_does_not_change_under_it() -> None:
    table, _ = build([(b"b", 0, b"1", False)])
    held = table.sorted_parts()
    table.append(Entry(b"a", b"2", 2, FLAG_CREATE_TS, 0))
    assert [entry.key for part in held for entry in entries_from_rows(part.rows)] == [b"b"]


@pytest.mark.parametrize("max_seq", [None, 7_001])
def test_a_key_that_is_written_again_and_again_is_read_at_one_row(max_seq: int | None) -> None:
    entries = [Entry(b"n", b"%d" % seq, seq, FLAG_CREATE_TS) for seq in range(1, 8_001)]
    table = Memtable.from_sorted([rows_from_entries(in_order(entries))])
    assert [entry.seq for entry in table.get(b"n", max_seq)] == [max_seq or 8_000]
    assert table.last_seq_of(b"n") == 8_000


def test_a_frozen_table_takes_no_writes() -> None:
    table, _ = build([(b"b", 0, b"1", False)])
    table.adopt(table.freeze())
    with pytest.raises(AssertionError):
        table.append(Entry(b"a", b"2", 2, FLAG_CREATE_TS, 0))


def test_a_long_tail_is_sorted_elsewhere_while_rows_keep_coming() -> None:
    """Rows that are sorted by another scan, or frozen meanwhile, exist exactly once."""

    class SlowCpu:
        def __init__(self, meanwhile: Callable[[], None]) -> None:
            self.meanwhile = meanwhile
            self.runs = 0

        async def run(self, work: Callable[[], T]) -> T:
            self.runs += 1
            result = work()
            self.meanwhile()
            return result

    def filled(start: int, count: int, table: Memtable) -> None:
        for seq in range(start, start + count):
            table.append(Entry(b"%d" % (seq * 7919 % 10_007), b"v", seq, FLAG_CREATE_TS, seq))

    async def scenario(meanwhile: str) -> None:
        table = Memtable()
        filled(1, 3000, table)
        table.sorted_parts()
        filled(3001, 6000, table)
        assert table.sorted_log.has_long_tail

        def happens() -> None:
            if meanwhile == "writes":
                filled(9001, 10, table)
            elif meanwhile == "scan":
                table.sorted_parts()
            elif meanwhile == "freeze":
                table.adopt(table.freeze())

        cpu = SlowCpu(happens)
        await table.sorted_log.prepare(cpu)
        assert cpu.runs == 1
        rows = entries_from_rows(table.rows())
        assert rows == in_order(rows)
        assert (
            len({entry.seq for entry in rows}) == len(rows) == len(table) == (9010 if meanwhile == "writes" else 9000)
        )

    for meanwhile in ("nothing", "writes", "scan", "freeze"):
        anyio.run(scenario, meanwhile)


def test_many_small_commits_of_columns_are_merged_few_times() -> None:
    """A merge of each commit into all earlier ones would move a million rows."""
    merged = 0

    class Counting:
        async def run(self, work: Any) -> Any:
            nonlocal merged
            rows = work()
            merged += len(rows)
            return rows

    async def scenario() -> None:
        table = Memtable()
        for seq in range(1, 8001):
            if needs_merge(table.columns):
                await merge_parts(table.columns, Counting())  # type: ignore[arg-type]
            table.append_columns(rows_from_entries([Entry(b"%04d" % (seq * 7919 % 1000), b"%d" % seq, seq, 1, 0, 0)]))
        assert len(table) == 8000
        newest_first = [seq for seq in range(8000, 0, -1) if seq * 7919 % 1000 == 7]
        assert sorted(table.seqs_of(b"0007"), reverse=True) == newest_first
        assert [entry.seq for entry in table.get(b"0007")] == newest_first[:1]

    anyio.run(scenario)
    assert merged < 60_000


def test_a_scan_merges_few_rows_on_the_loop_however_the_sorted_parts_grow() -> None:
    """A short tail may complete a part of half the table; merging it takes long, too."""

    class ThreadCpu:
        async def run(self, work: Callable[[], T]) -> T:
            nonlocal is_in_thread
            is_in_thread = True
            try:
                return work()
            finally:
                is_in_thread = False

    is_in_thread = False
    inline: list[int] = []

    async def scenario() -> None:
        table = Memtable()
        sort = table.log.sorted_rows

        def recorded(start: int, end: int) -> Any:
            if not is_in_thread:
                inline.append(end - start)
            return sort(start, end)

        monkeypatch.setattr(type(table.log), "sorted_rows", lambda _, start, end: recorded(start, end))
        for seq in range(1, 40_001):
            table.append(Entry(b"%d" % (seq * 7919 % 100_003), b"v", seq, FLAG_CREATE_TS, seq))
            if seq % 1000 == 0:
                if table.sorted_log.has_long_tail:
                    await table.sorted_log.prepare(ThreadCpu())
                assert sum(map(len, table.sorted_parts())) == seq
        assert len(table.sorted_parts()) < 10

    with pytest.MonkeyPatch.context() as monkeypatch:
        anyio.run(scenario)
    assert max(inline) <= INLINE_ROWS_MAX


def test_rows_that_come_while_a_long_tail_is_sorted_are_sorted_elsewhere_too() -> None:
    class BusyCpu:
        runs = 0

        async def run(self, work: Callable[[], T]) -> T:
            result = work()
            self.runs += 1
            for _ in range(5000 if self.runs == 1 else 10):
                append_next()
            return result

    table = Memtable()

    def append_next() -> None:
        seq = len(table) + 1
        table.append(Entry(b"%d" % (seq * 7919 % 100_003), b"v", seq, FLAG_CREATE_TS, seq))

    async def scenario() -> None:
        for _ in range(5000):
            append_next()
        cpu = BusyCpu()
        await table.sorted_log.prepare(cpu)
        assert cpu.runs == 2
        assert not table.sorted_log.has_long_tail

    anyio.run(scenario)
