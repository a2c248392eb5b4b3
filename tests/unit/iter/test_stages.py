"""The stages around the merge: resuming, folding operands over chunk borders, and what readers see."""

import asyncio
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shale.env import Env, InlineCpu, SystemClock
from shale.errors import MergeOperatorFailed, MergeOperatorMissing
from shale.iter.compaction import compaction_source
from shale.iter.merge_operator import MergeOperandSource, fold_versions
from shale.iter.resume import ResumeSource
from shale.iter.retention import RetentionPolicy, keeps_as_is
from shale.iter.source import RowSource, RowsSource, drain
from shale.iter.visible import VisibleSource
from shale.kernels.rows import concat_rows, entries_from_rows, rows_from_entries
from shale.merge_operators import int_add
from shale.types import FLAG_CREATE_TS, FLAG_EXPIRE_TS, FLAG_MERGE, FLAG_TOMBSTONE, U64_MAX, Entry
from tests.unit.iter.merge_inputs import Chunks
from tests.unit.iter.traces import concatenate
from tests.unit.kernels.strategies import in_order

ENV = Env(SystemClock(), random.Random(1), InlineCpu())
KINDS = st.sampled_from([0, FLAG_MERGE, FLAG_MERGE, FLAG_TOMBSTONE])


@st.composite
def rows(draw: st.DrawFn) -> Entry:
    kind, seq = draw(KINDS), draw(st.integers(1, 60))
    expires = kind != FLAG_TOMBSTONE and draw(st.booleans())
    flags = kind | FLAG_CREATE_TS | (FLAG_EXPIRE_TS if expires else 0)
    value = b"" if kind == FLAG_TOMBSTONE else b"%d," % seq
    expire_ts = draw(st.sampled_from([5, 20])) if expires else 0
    return Entry(draw(st.sampled_from([b"a", b"b", b"bb"])), value, seq, flags, seq, expire_ts)


TREES = st.lists(st.lists(rows(), max_size=40).map(in_order), min_size=1, max_size=4)


def collect(source: RowSource) -> list[Entry]:
    return entries_from_rows(concat_rows(asyncio.run(drain(source))))


def without_twins(tree: list[list[Entry]]) -> list[list[Entry]]:
    """Return sources without a common (key, seq), of which only the first would count."""
    seen: set[tuple[bytes, int]] = set()
    out = []
    for source in tree:
        out.append([row for row in source if (row.key, row.seq) not in seen])
        seen |= {(row.key, row.seq) for row in source}
    return out


@given(TREES, st.none() | st.integers(0, 60), st.booleans(), st.booleans())
def test_rows_that_need_no_stage_are_those_that_pass_unchanged(
    tree: list[list[Entry]], min_seq: int | None, drop: bool, one_each: bool
) -> None:
    entries = list({row.key: row for row in tree[0]}.values()) if one_each else tree[0]
    plain = rows_from_entries(entries)
    retention = RetentionPolicy(min_seq=min_seq, now_tick=10, drop_tombstones=drop)
    kept = collect(compaction_source([RowsSource(plain)], retention=retention, operator=concatenate, env=ENV))
    if keeps_as_is(plain, retention):
        assert kept == entries
    elif one_each and not drop:
        assert any(row.flags & (FLAG_EXPIRE_TS | FLAG_MERGE) for row in entries), "a plain table is copied for nothing"


@given(TREES, st.integers(1, 7), st.none() | st.integers(0, 60), st.booleans(), st.data())
def test_a_compaction_resumes_after_its_last_row(
    tree: list[list[Entry]], chunk: int, min_seq: int | None, drop: bool, data: st.DataObject
) -> None:
    """Cut anywhere, also between versions of a key: written and remaining rows equal the uncut result."""

    def source() -> RowSource:
        retention = RetentionPolicy(min_seq=min_seq, now_tick=10, drop_tombstones=drop)
        inputs = [Chunks(entries, chunk) for entries in tree]
        return compaction_source(inputs, retention=retention, operator=concatenate, env=ENV)

    whole = collect(source())
    if whole:
        cut = data.draw(st.integers(1, len(whole)))
        last = whole[cut - 1]
        assert whole[:cut] + collect(ResumeSource(source(), last, U64_MAX if min_seq is None else min_seq)) == whole


@given(TREES, st.integers(1, 7), st.none() | st.integers(0, 60), st.booleans())
def test_operands_fold_alike_whatever_the_chunks(
    tree: list[list[Entry]], chunk: int, barrier: int | None, mix: bool
) -> None:
    entries = in_order([entry for source in tree for entry in source])
    folded = MergeOperandSource(Chunks(entries, chunk), concatenate, barrier, ENV, mix_expiry=mix)
    assert collect(folded) == fold_versions(entries, concatenate, barrier, mix_expiry=mix)


@given(
    st.integers(0, 450),
    st.sets(st.integers(1, 450), max_size=3),
    st.sampled_from([None, b"", b"!"]),
    st.integers(1, 130),
)
def test_what_the_operator_refuses_stays_readable_by_one_that_takes_it(
    count: int, bad: set[int], base: bytes | None, chunk: int
) -> None:
    """At any place among hundreds of operands: no operand is lost or counted twice."""
    values = {seq: b"!%d," % seq if seq in bad else b"%d," % seq for seq in range(1, count + 1)}
    entries = [Entry(b"k", value, seq, FLAG_MERGE) for seq, value in values.items()]
    if base is not None:
        entries.insert(0, Entry(b"k", base, 0, 0))
    whole = [*entries[::-1], Entry(b"l", b"1", 2, FLAG_MERGE), Entry(b"l", b"0", 1, 0)]
    refused: list[int] = []

    def fussy(key: bytes, existing: bytes | None, operands: Sequence[bytes]) -> bytes:
        if any(b"!" in value for value in [existing or b"", *operands]):
            raise MergeOperatorFailed("no")
        return concatenate(key, existing, operands)

    source = MergeOperandSource(
        Chunks(whole, chunk), fussy, None, ENV, on_merge_failure=lambda count, _error: refused.append(count)
    )
    *kept, last = collect(source)
    assert (last.value, last.is_merge) == (b"01", False)
    seqs = [entry.seq for entry in kept]
    assert seqs == sorted(set(seqs), reverse=True)
    if entries:
        whole_value = b"".join(entry.value for entry in entries)
        (lenient,) = fold_versions(kept, concatenate, None)
        assert (lenient.value, lenient.is_merge) == (whole_value, base is None)
    has_bad = any(b"!" in entry.value for entry in entries)
    assert bool(refused) == has_bad or len(entries) == 1
    assert len(kept) < 100 + sum(refused)


@given(TREES, st.integers(1, 7), st.none() | st.integers(0, 60))
def test_readers_see_a_key_as_if_history_ended_there(tree: list[list[Entry]], chunk: int, max_seq: int | None) -> None:
    tree = without_twins(tree)
    history: dict[bytes, bytes | None] = {}
    for row in sorted((row for source in tree for row in source), key=lambda row: row.seq):
        if max_seq is None or row.seq <= max_seq:
            base = history.get(row.key)
            value = concatenate(row.key, base, [row.value]) if row.is_merge else row.value
            history[row.key] = None if row.is_tombstone else value
    source = VisibleSource([Chunks(entries, chunk) for entries in tree], max_seq, ENV, operator=concatenate)
    seen = collect(source)
    assert {row.key: row.value for row in seen} == {key: value for key, value in history.items() if value is not None}
    assert [row.key for row in seen] == sorted({row.key for row in seen})


def test_operands_without_an_operator_are_an_error_for_readers() -> None:
    source = VisibleSource([Chunks([Entry(b"k", b"1", 1, FLAG_MERGE)], 1)], None, ENV)
    with pytest.raises(MergeOperatorMissing):
        collect(source)


def test_readers_still_see_expired_rows() -> None:
    row = Entry(b"k", b"v", 1, FLAG_EXPIRE_TS, 0, -(2**63))
    assert collect(VisibleSource([Chunks([row], 1)], None, ENV)) == [row]


@given(TREES, st.integers(1, 7), st.integers(0, 60))
def test_compaction_without_an_operator_loses_nothing(tree: list[list[Entry]], chunk: int, min_seq: int) -> None:
    """Readers with the operator see the same before and after (docs/reference/protocol.md 7.4)."""
    tree = [[row for row in source if not row.flags & FLAG_EXPIRE_TS] for source in without_twins(tree)]
    retention = RetentionPolicy(min_seq=min_seq, now_tick=10, drop_tombstones=True)
    compacted = collect(
        compaction_source([Chunks(s, chunk) for s in tree], retention=retention, operator=None, env=ENV)
    )
    for max_seq in (min_seq, 61):
        before = VisibleSource([Chunks(s, 50) for s in tree], max_seq, ENV, operator=concatenate)
        after = VisibleSource([Chunks(compacted, 50)], max_seq, ENV, operator=concatenate)
        assert collect(after) == collect(before)


def test_a_put_cures_a_key_that_the_operator_cannot_fold() -> None:
    """Versions that the put hides are dropped before the fold; otherwise no compaction would succeed."""
    rows = [Entry(b"k", b"new", 5, 0), Entry(b"k", bytes(8), 4, FLAG_MERGE), Entry(b"k", b"no integer", 3, 0)]
    retention = RetentionPolicy(min_seq=5, now_tick=0, drop_tombstones=False)
    source = compaction_source([RowsSource(rows_from_entries(rows))], retention=retention, operator=int_add, env=ENV)
    kept = asyncio.run(source.next())
    assert kept is not None
    assert list(entries_from_rows(kept)) == rows[:1]
