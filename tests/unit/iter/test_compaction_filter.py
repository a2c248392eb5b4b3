"""Compaction filters: their input, the effect of their decisions, and the report of their failures."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shale import CompactionFilter, Decisions, FilterContext, RowBatch
from shale.compaction.filters import NamedCompactionFilter
from shale.env import Env, InlineCpu, SystemClock
from shale.errors import CompactionFilterFailed, FencedError
from shale.iter.compaction_filter import CompactionFilterSource, same_as_previous
from shale.iter.row_edit import rows_where, with_tombstones, with_values
from shale.iter.source import drain
from shale.kernels.rows import concat_rows, entries_from_rows, rows_from_entries
from shale.types import (
    FLAG_CREATE_TS,
    FLAG_EXPIRE_TS,
    FLAG_MERGE,
    FLAG_TOMBSTONE,
    Entry,
)
from tests.unit.iter.merge_inputs import CONTEXT, Chunks
from tests.unit.kernels.strategies import SORTED_ROWS, in_order

ENV = Env(SystemClock(), random.Random(1), InlineCpu())


class Base(CompactionFilter):
    """A filter that records its input."""

    def __init__(self, context: FilterContext) -> None:
        self.shown: list[tuple[bytes, int]] = []
        self.finished = 0

    def filter(self, batch: RowBatch) -> Decisions | None:
        self.shown += zip(batch.keys, batch.seq.tolist(), strict=True)
        return self.decide(batch)

    def decide(self, batch: RowBatch) -> Decisions | None:
        return None

    def finish(self) -> None:
        self.finished += 1


def filtered(
    rows: list[Entry], filter_: CompactionFilter, *, chunk: int = 3, after: Entry | None = None
) -> list[Entry]:
    named = NamedCompactionFilter("mine", lambda _context: filter_)
    source = CompactionFilterSource(Chunks(rows, chunk), named, CONTEXT, ENV, after=after)
    return entries_from_rows(concat_rows(asyncio.run(drain(source))))


def value(key: bytes, seq: int, flags: int = 0) -> Entry:
    return Entry(key, b"v%d" % seq, seq, flags | FLAG_CREATE_TS | FLAG_EXPIRE_TS, 7, 9)


def pending(key: bytes, seq: int) -> Entry:
    return Entry(key, b"", seq, FLAG_TOMBSTONE)


@pytest.mark.parametrize("chunk", [1, 2, 3, 100])
def test_it_sees_current_versions_without_tombstones(chunk: int) -> None:
    rows = [
        *(value(b"a", 9), value(b"a", 3)),
        *(value(b"b", 9, FLAG_MERGE), value(b"b", 8, FLAG_MERGE), value(b"b", 7), value(b"b", 6)),
        *(pending(b"c", 9), value(b"c", 2)),
        *(value(b"d", 9, FLAG_MERGE), pending(b"d", 8), value(b"d", 7, FLAG_MERGE)),
        value(b"dd", 1),
    ]
    seen = Base(CONTEXT)
    assert filtered(rows, seen, chunk=chunk) == rows
    assert seen.shown == [(b"a", 9), (b"b", 9), (b"b", 8), (b"b", 7), (b"d", 9), (b"dd", 1)]
    assert seen.finished == 1


@pytest.mark.parametrize(
    ("after", "shown"),
    [(value(b"a", 5), [(b"b", 1)]), (value(b"a", 5, FLAG_MERGE), [(b"a", 4), (b"b", 1)])],
)
def test_a_resumed_range_knows_what_came_before(after: Entry, shown: list[tuple[bytes, int]]) -> None:
    seen = Base(CONTEXT)
    filtered([value(b"a", 4), value(b"a", 3), value(b"b", 1)], seen, after=after)
    assert seen.shown == shown


def decide(decisions: Decisions, rows: Sequence[Entry]) -> list[Entry]:
    class Decided(Base):
        def decide(self, batch: RowBatch) -> Decisions:
            return decisions

    return filtered(list(rows), Decided(CONTEXT), chunk=100)


ROWS = [value(b"a", 1), value(b"b", 2), value(b"c", 3, FLAG_MERGE)]


def test_a_deleted_row_becomes_a_tombstone_that_never_expires() -> None:
    first = Entry(b"a", b"", 1, FLAG_TOMBSTONE | FLAG_CREATE_TS, 7, 0)
    assert decide(Decisions(delete=[True, False, False]), ROWS) == [first, *ROWS[1:]]


def test_a_dropped_row_leaves_no_trace() -> None:
    assert decide(Decisions(drop=np.array([False, True, True])), ROWS) == ROWS[:1]


def test_a_new_value_keeps_kind_and_times() -> None:
    wanted = [ROWS[0], ROWS[1]._replace(value=b""), ROWS[2]._replace(value=b"longer than before")]
    assert decide(Decisions(values={2: b"longer than before", 1: b""}), ROWS) == wanted


def test_everything_at_once() -> None:
    decisions = Decisions(delete=[True, False, False], drop=[False, False, True], values={1: b"new"})
    deleted = Entry(b"a", b"", 1, FLAG_TOMBSTONE | FLAG_CREATE_TS, 7, 0)
    assert decide(decisions, ROWS) == [deleted, ROWS[1]._replace(value=b"new")]


@pytest.mark.parametrize(
    ("decisions", "why"),
    [
        pytest.param(Decisions(delete=[True]), "3 booleans", id="too short"),
        pytest.param(Decisions(drop=[0, 1, 2]), "3 booleans", id="places instead of a mask"),  # type: ignore[list-item]
        pytest.param(Decisions(values={3: b""}), "row 3 of 3", id="no such row"),
        pytest.param(Decisions(values={0: "text"}), "not bytes", id="not bytes"),  # type: ignore[dict-item]
        pytest.param(Decisions(values={0: b""}, drop=[True, False, False]), "two decisions", id="value and drop"),
        pytest.param(Decisions(delete=[True] * 3, drop=[True] * 3), "two decisions", id="delete and drop"),
    ],
)
def test_impossible_decisions_are_refused(decisions: Decisions, why: str) -> None:
    with pytest.raises(CompactionFilterFailed, match=why):
        decide(decisions, ROWS)


@pytest.mark.parametrize("answer", [[True, False, True], "keep", True])
def test_an_answer_that_is_no_decision_is_refused(answer: object) -> None:
    with pytest.raises(CompactionFilterFailed, match=f"returned {type(answer).__name__}, not shale.Decisions"):
        decide(answer, ROWS)  # type: ignore[arg-type]


def test_a_batch_cannot_be_written_to() -> None:
    """A filter could otherwise change the database without a decision."""
    rows = rows_from_entries([value(b"a", 1), value(b"b", 1)])
    batch = RowBatch(replace(rows, val_bytes=rows.val_bytes.copy()), CONTEXT)
    with pytest.raises(ValueError, match="read-only"):
        batch.rows.val_bytes[:] = 0


@pytest.mark.parametrize("error", [ValueError("the value of secret-key-of-a-user"), FencedError("not ours")])
def test_a_failure_names_filter_segment_and_key_but_no_data(error: Exception) -> None:
    class Fails(Base):
        def decide(self, batch: RowBatch) -> None:
            raise error

    with pytest.raises(CompactionFilterFailed) as failure:
        filtered([value(b"secret-key-of-a-user", 1)], Fails(CONTEXT))
    text = str(failure.value)
    assert text.startswith("compaction filter 'mine', segment root, in the batch from key 20:7365637265742d6b, raised ")
    assert type(error).__name__ in text
    assert "test_compaction_filter.py:" in text
    assert "secret-key-of-a-user" not in text
    assert failure.value.__cause__ is error


def test_failing_to_begin_is_told_too() -> None:
    def make(context: FilterContext) -> CompactionFilter:
        raise OSError(context.job_id)

    source = CompactionFilterSource(Chunks([value(b"a", 1)], 1), NamedCompactionFilter("mine", make), CONTEXT, ENV)
    with pytest.raises(CompactionFilterFailed, match="'mine', segment root raised OSError"):
        asyncio.run(drain(source))


def test_what_is_no_filter_is_told_before_any_work() -> None:
    source = CompactionFilterSource(
        Chunks([value(b"a", 1)], 1), NamedCompactionFilter("list", lambda _context: []), CONTEXT, ENV
    )  # type: ignore[arg-type,return-value]
    with pytest.raises(CompactionFilterFailed, match="'list', segment root is not a shale"):
        asyncio.run(source.next())


def test_a_filter_needs_one_method() -> None:
    class Minimal(CompactionFilter):
        def filter(self, batch: RowBatch) -> Decisions:
            return Decisions(drop=[True] * len(batch))

    source = CompactionFilterSource(
        Chunks([value(b"a", 1)], 1), NamedCompactionFilter("minimal", Minimal), CONTEXT, ENV
    )
    assert asyncio.run(drain(source)) == []


def test_a_batch_is_columns_that_cannot_be_written_to() -> None:
    batch = RowBatch(rows_from_entries([value(b"a", 1), Entry(b"bb", b"", 2, FLAG_MERGE)]), CONTEXT)
    assert batch.keys == [b"a", b"bb"]
    assert batch.values == [b"v1", b""]
    assert batch.key_sizes.tolist() == [1, 2]
    assert batch.value_sizes.tolist() == [2, 0]
    assert batch.create_ts.tolist() == [7, 0]
    assert batch.has_create_ts.tolist() == [True, False]
    assert batch.expire_ts.tolist() == [9, 0]
    assert batch.has_expire_ts.tolist() == [True, False]
    assert batch.is_operand.tolist() == [False, True]
    with pytest.raises(ValueError, match="read-only"):
        batch.seq[0] = 3


@given(SORTED_ROWS, st.data())
def test_edits_agree_with_edits_of_entries(rows: list[Entry], data: st.DataObject) -> None:
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))))
    start = data.draw(st.integers(0, len(rows) - 1))
    columns, rows, mask = rows_from_entries(rows).slice(start, len(rows)), rows[start:], mask[start:]
    assert entries_from_rows(rows_where(columns, mask)) == [row for row, kept in zip(rows, mask, strict=True) if kept]
    tombstones = [
        Entry(row.key, b"", row.seq, row.flags & FLAG_CREATE_TS | FLAG_TOMBSTONE, row.create_ts) if deleted else row
        for row, deleted in zip(rows, mask, strict=True)
    ]
    assert entries_from_rows(with_tombstones(columns, mask)) == tombstones
    values = {place: b"x" * place for place in np.flatnonzero(mask).tolist()}
    replaced = [row._replace(value=values.get(place, row.value)) for place, row in enumerate(rows)]
    assert entries_from_rows(with_values(columns, values)) == replaced


@given(SORTED_ROWS, st.booleans())
def test_neighbours_with_one_key(rows: list[Entry], same_length: bool) -> None:
    if same_length:
        rows = in_order([row._replace(key=(row.key + b"\0\0\0")[:3]) for row in rows])
    found = same_as_previous(rows_from_entries(rows), rows[0].key)
    keys = [rows[0].key, *(row.key for row in rows)]
    assert found.tolist() == [left == right for left, right in pairwise(keys)]
