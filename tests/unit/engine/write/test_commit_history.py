"""Conflict checks have the same result before and after flushes, and in bounded memory."""

import gc
import random
import weakref
from collections.abc import Callable
from typing import ClassVar, TypeVar

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shale.engine.memtable.memtable import Memtable
from shale.engine.write.commit_history import CommitHistory
from shale.env import Env, InlineCpu, SystemClock
from shale.kernels.rows import rows_from_entries
from shale.types import FLAG_CREATE_TS, Entry, KeyRange, excluded, included

T = TypeVar("T")
ENV = Env(SystemClock(), random.Random(1), InlineCpu())
KEYS = st.sampled_from([b"a", b"b", b"bb", b"c", b"d"])
STEPS = st.lists(st.tuples(st.sampled_from(["put", "put", "hide", "columns", "begin", "end", "freeze", "flush"]), KEYS))


@given(STEPS, KEYS, KEYS)
def test_the_history_knows_what_was_written_whatever_was_flushed(steps, low: bytes, high: bytes) -> None:
    """Compared with a plain list of writes."""
    key_range = KeyRange(included(low), excluded(high))

    async def run() -> None:
        table, seq = Memtable(), 0
        history, frozen = CommitHistory(table, 1 << 20), []
        open_ = []
        writes: list[tuple[bytes, int]] = []
        for kind, key in steps:
            if kind in ("put", "hide", "columns"):
                seq += 1
                entry = Entry(key, b"v" * 50, seq, FLAG_CREATE_TS, seq)
                table.append_columns(rows_from_entries([entry])) if kind == "columns" else table.append(entry)
                if kind == "hide":
                    history.hide([key], seq)
                else:
                    writes.append((key, seq))
            elif kind == "begin":
                open_.append(history.begin(seq))
            elif kind == "end" and open_:
                open_.pop(len(open_) // 2).close()
            elif kind == "freeze" and len(table):
                table.adopt(table.freeze())
                frozen.append(table)
                table = Memtable()
                history.set_active(table)
            elif kind == "flush" and frozen:
                await history.flushed([frozen.pop(0)], ENV)
            for since in open_:
                newer = [each for each, at in writes if at > since.seq]
                assert since.wrote_any([key]) == (key in newer)
                assert since.wrote_in([key_range]) == any(low <= each < high for each in newer)
        for since in open_:
            since.close()
        history.forget()
        assert history.size_bytes == 0

    anyio.run(run)


def table_of(*writes: tuple[bytes, int]) -> Memtable:
    table = Memtable()
    for key, seq in writes:
        table.append(Entry(key, b"value", seq, FLAG_CREATE_TS, seq))
    return table


async def flush(history: CommitHistory, *tables: Memtable) -> None:
    """Make the next table active, then flush these."""
    for table in tables:
        table.adopt(table.freeze())
    await history.flushed(tables, ENV)


def test_a_window_sees_only_later_writes_in_its_own_and_later_tables() -> None:
    async def run() -> None:
        first, second = table_of((b"a", 1), (b"b", 2)), table_of((b"c", 3))
        history = CommitHistory(first, 1 << 20)
        early = history.begin(1)
        history.set_active(second)
        late = history.begin(3)
        second.append(Entry(b"a", b"", 4, FLAG_CREATE_TS, 4))
        for flushed in (False, True):
            if flushed:
                history.set_active(Memtable())
                await flush(history, first, second)
                assert history.size_bytes == 3 * 17
            seen = {key: (early.wrote_any([key]), late.wrote_any([key])) for key in (b"a", b"b", b"c", b"d")}
            assert seen == {b"a": (True, True), b"b": (True, False), b"c": (True, False), b"d": (False, False)}
            ranges = [KeyRange.half_open(key, key + b"\0") for key in (b"a", b"b", b"c", b"d")]
            assert [early.wrote_in([each]) for each in ranges] == [True, True, True, False]
            assert [late.wrote_in([each]) for each in ranges] == [True, False, False, False]
            assert early.wrote_any([b"d", b"b"])
            assert early.wrote_in([ranges[3], ranges[1]])
            assert not early.wrote_any([])
            assert not early.wrote_in([])
        late.close()
        late.close()
        history.forget()
        assert history.size_bytes == 3 * 17
        early.close()
        history.forget()
        assert history.size_bytes == 0

    anyio.run(run)


def test_hidden_writes_of_one_key_do_not_hide_its_other_writes() -> None:
    async def run() -> None:
        table = table_of()
        history = CommitHistory(table, 1 << 20)
        window = history.begin(0)
        for seq, is_hidden, wrote in ((1, True, False), (2, False, True), (3, True, True)):
            table.append(Entry(b"k", b"", seq, FLAG_CREATE_TS, seq))
            if is_hidden:
                history.hide([b"k"], seq)
            assert window.wrote_any([b"k"]) is wrote
            assert window.wrote_in([KeyRange()]) is wrote
        later = history.begin(2)
        assert not later.wrote_any([b"k"])
        assert not later.wrote_in([KeyRange()])
        history.set_active(Memtable())
        await flush(history, table)
        assert (window.wrote_any([b"k"]), later.wrote_any([b"k"])) == (True, False)
        assert history.size_bytes == 17

    anyio.run(run)


def test_nothing_is_kept_without_a_window() -> None:
    async def run() -> None:
        table = table_of((b"a", 1))
        history = CommitHistory(table, 1 << 20)
        history.hide([b"a"], 1)
        later = Memtable()
        history.set_active(later)
        await flush(history, table)
        assert history.size_bytes == 0
        window = history.begin(1)
        later.append(Entry(b"a", b"", 2, FLAG_CREATE_TS, 2))
        assert window.wrote_any([b"a"])
        del window
        history.set_active(Memtable())
        await flush(history, later)
        assert history.size_bytes == 0, "a window that is dropped has ended"

    anyio.run(run)


@pytest.mark.slow
def test_memtables_are_dropped_with_the_last_window_that_needs_them() -> None:
    tables = [table_of((b"a", 1)), table_of((b"b", 2)), Memtable()]
    logs = [weakref.ref(table.log.seqs) for table in tables]
    history = CommitHistory(tables[0], 1 << 20)
    first = history.begin(0)
    history.set_active(tables[1])
    second = history.begin(1)
    history.set_active(tables[2])
    del tables
    gc.collect()
    assert [log() is None for log in logs] == [False, False, False]
    first.close()
    history.forget()
    gc.collect()
    assert [log() is None for log in logs] == [True, False, False]
    second.close()
    third = history.begin(2)
    gc.collect()
    assert [log() is None for log in logs] == [True, True, False]
    third.close()
    history.set_active(Memtable())
    gc.collect()
    assert [log() is None for log in logs] == [True, True, True]


def test_the_next_memtable_drops_one_that_no_window_needs() -> None:
    table = table_of((b"a", 1))
    log, history = weakref.ref(table.log.seqs), CommitHistory(table, 1 << 20)
    history.begin(0).close()
    history.set_active(Memtable())
    del table
    assert log() is None


def test_a_flush_after_the_last_window_keeps_nothing() -> None:
    async def run() -> None:
        first, second = table_of(*((b"%d" % number, number + 1) for number in range(5))), table_of((b"a", 6))
        history = CommitHistory(first, 1 << 20)
        window = history.begin(0)
        history.set_active(second)
        await flush(history, first)
        assert history.size_bytes == 5 * 17
        history.set_active(Memtable())
        window.close()
        await flush(history, second)
        assert history.size_bytes == 0

    anyio.run(run)


class Counted(int):
    """A sequence number that is noted when nothing holds it any more."""

    dropped: ClassVar[list[int]] = []

    def __del__(self) -> None:
        self.dropped.append(int(self))


def test_hidden_writes_are_forgotten_with_the_last_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counted, "dropped", dropped := [])
    history = CommitHistory(Memtable(), 1 << 20)
    history.hide([b"a"], Counted(1))
    assert dropped == [1], "no window needs it"
    window = history.begin(1)
    history.hide([b"a", b"b"], Counted(2))
    assert dropped == [1]
    window.close()
    history.forget()
    assert dropped == [1, 2]


def test_hidden_writes_are_forgotten_with_the_flush_of_their_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counted, "dropped", dropped := [])
    table = table_of((b"a", 1), (b"b", 2))
    history = CommitHistory(table, 1 << 20)
    window = history.begin(0)
    history.hide([b"a"], Counted(1))
    history.hide([b"c"], Counted(3))
    history.set_active(Memtable())
    anyio.run(flush, history, table)
    assert dropped == [1]
    assert [window.wrote_any([key]) for key in (b"a", b"b")] == [False, True]


def test_a_table_that_no_window_needs_is_passed_over() -> None:
    first, second = table_of((b"a", 1)), table_of((b"b", 2))
    history = CommitHistory(first, 1 << 20)
    history.set_active(second)
    window = history.begin(1)
    history.set_active(Memtable())
    anyio.run(flush, history, first, second)
    assert history.size_bytes == 17, "the keys of the second one"
    assert window.wrote_any([b"b"])


def test_a_table_from_before_the_oldest_window_is_not_kept() -> None:
    async def run() -> None:
        tables = [table_of((b"a", 1)), table_of((b"b", 2)), table_of((b"c", 3))]
        history = CommitHistory(tables[0], 1 << 20)
        first = history.begin(0)
        history.set_active(tables[1])
        second = history.begin(1)
        history.set_active(tables[2])
        first.close()
        await flush(history, tables[0])
        assert history.size_bytes == 0
        history.set_active(Memtable())
        await flush(history, tables[1])
        assert history.size_bytes == 17
        third = history.begin(2)
        second.close()
        history.forget()
        assert history.size_bytes == 0, "all of the part was written before the window began"
        await flush(history, tables[2])
        assert (history.size_bytes, third.wrote_any([b"c"])) == (0, False)

    anyio.run(run)


@pytest.mark.parametrize(("limit_bytes", "lost"), [(17 * 4, 0), (17 * 4 - 1, 1), (17 * 2, 2), (16, 4), (0, 4)])
def test_windows_overflow_oldest_first_once_the_keys_are_beyond_the_limit(
    limit_bytes: int, lost: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Window ``n`` began after write ``n``; four writes follow the first one."""

    async def run() -> None:
        table = Memtable()
        history, windows = CommitHistory(table, limit_bytes), []
        for seq in range(4):
            windows.append(history.begin(seq))
            table.append(Entry(b"%d" % seq, b"", seq + 1, FLAG_CREATE_TS, seq))
        history.set_active(Memtable())
        await flush(history, table)
        assert [window.has_overflowed for window in windows] == [number < lost for number in range(4)]
        assert history.size_bytes == 17 * (4 - lost)
        for number, window in enumerate(windows[lost:], lost):
            assert [window.wrote_any([b"%d" % key]) for key in range(4)] == [key >= number for key in range(4)]
        assert caplog.text.count("history") == (1 if lost else 0)
        for window in windows:
            window.close()

    anyio.run(run)


def test_an_overflow_drops_the_memtables_that_only_lost_windows_need() -> None:
    async def run() -> None:
        tables = [table_of((b"a", 1)), table_of((b"b", 2)), Memtable()]
        history = CommitHistory(tables[0], 0)
        window = history.begin(0)
        for table in tables[1:]:
            history.set_active(table)
        log = weakref.ref(tables[1].log.seqs)
        await flush(history, tables[0])
        assert window.has_overflowed
        del tables, table
        gc.collect()
        assert log() is None

    anyio.run(run)


def test_parts_are_merged_so_that_few_are_left_and_no_key_is_kept_twice() -> None:
    async def run() -> None:
        history = CommitHistory(first := Memtable(), 1 << 20)
        window, table, seq = history.begin(0), first, 0
        sizes = []
        for keys in (8, 3, 1, 1, 2, 1, 16):
            for key in range(keys):
                seq += 1
                table.append(Entry(b"%02d" % key, b"", seq, FLAG_CREATE_TS, seq))
            following = Memtable()
            history.set_active(following)
            await flush(history, table)
            table = following
            sizes.append(history.size_bytes // 18)
            for key in (b"00", b"07"):
                assert window.wrote_any([key])
                assert window.wrote_in([KeyRange.half_open(key, key + b"\0")])
            assert not window.wrote_any([b"071", b"16"])
            assert not window.wrote_in([KeyRange.half_open(b"071", b"08"), KeyRange.half_open(b"16", None)])
        # 8 | 8 3 | 8 3 1 | 8 3 1, merged | 8 3, merged | 8 3 1 | all
        assert sizes == [8, 11, 12, 12, 11, 12, 16]

    anyio.run(run)


@pytest.mark.parametrize(("size", "limit", "kept"), [(4, 9, 4), (5, 7, 7), (5, 5, 5)])
def test_parts_are_merged_for_their_sizes_or_for_the_limit(
    size: int, limit: int, kept: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A part takes a newer one of at least half its size; beyond the limit, all are merged before a window ends."""

    async def run() -> None:
        first, second = table_of(*((b"%d" % key, key + 1) for key in range(size))), table_of((b"0", 6), (b"1", 7))
        history = CommitHistory(first, 17 * limit)
        window = history.begin(0)
        for table, following in ((first, second), (second, Memtable())):
            history.set_active(following)
            await flush(history, table)
        assert (history.size_bytes, window.has_overflowed, caplog.text) == (17 * kept, False, "")

    anyio.run(run)


def test_a_window_that_ends_during_a_flush_leaves_nothing() -> None:
    class Cpu(InlineCpu):
        async def run(self, work: Callable[[], T]) -> T:
            window.close()
            return work()

    table = table_of((b"a", 1))
    history = CommitHistory(table, 1 << 20)
    window = history.begin(0)
    history.set_active(Memtable())
    table.adopt(table.freeze())
    anyio.run(history.flushed, [table], Env(SystemClock(), random.Random(1), Cpu()))
    assert (window.has_overflowed, history.size_bytes) == (True, 0)
