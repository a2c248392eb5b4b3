"""The trace tables of docs/reference/protocol.md 7.2, 7.4 and 7.6, through the whole pipeline of a compaction."""

import asyncio
import random

import pytest

from shale.env import Env, InlineCpu, SystemClock
from shale.iter.compaction import compaction_source
from shale.iter.merge_operator import MergeOperator
from shale.iter.retention import RetentionPolicy
from shale.iter.source import RowsSource, drain
from shale.kernels.rows import concat_rows, entries_from_rows, rows_from_entries
from shale.types import FLAG_MERGE, FLAG_TOMBSTONE, Entry
from tests.unit.iter.traces import TRACES, concatenate, row

ENV = Env(SystemClock(), random.Random(1), InlineCpu())


def compacted(
    sources: list[list[Entry]], min_seq: int | None, *, drop: bool, operator: MergeOperator | None = concatenate
) -> list[Entry]:
    retention = RetentionPolicy(min_seq=min_seq, now_tick=10, drop_tombstones=drop)
    inputs = [RowsSource(rows_from_entries(entries)) for entries in sources]
    source = compaction_source(inputs, retention=retention, operator=operator, env=ENV)
    return entries_from_rows(concat_rows(asyncio.run(drain(source))))


@pytest.mark.parametrize(("versions", "min_seq", "drop", "expected"), TRACES)
def test_trace(versions: str, min_seq: int | None, drop: bool, expected: str) -> None:
    rows = [row(text) for text in versions.split()]
    wanted = [_shape(row(text)) for text in expected.split()]
    assert [_shape(entry) for entry in compacted([rows], min_seq, drop=drop)] == wanted
    apart = [[entry] for entry in rows]
    assert [_shape(entry) for entry in compacted(apart[::-1], min_seq, drop=drop)] == wanted


def test_an_operand_folded_onto_a_value_or_tombstone_is_a_value() -> None:
    assert compacted([[row("M5@5"), row("D@3")]], 9, drop=False) == [Entry(b"k", b"M5", 5, 0)]
    assert compacted([[row("M5@5"), row("v@3")]], 9, drop=False) == [Entry(b"k", b"vM5", 5, 0)]


def test_operands_pass_without_an_operator_and_keep_their_base() -> None:
    rows = [row(text) for text in ["M5@5", "M4@4", "v@3", "v@2"]]
    assert compacted([rows], None, drop=True, operator=None) == rows[:3]


def test_many_operands_fold_oldest_first() -> None:
    rows = [Entry(b"k", b"%d," % seq, seq, FLAG_MERGE) for seq in range(350, 0, -1)]
    folded = compacted([rows, [Entry(b"k", b"0,", 0, 0)]], None, drop=True)
    assert folded == [Entry(b"k", b"".join(b"%d," % seq for seq in range(351)), 350, 0)]


def test_of_two_rows_with_one_sequence_number_the_first_source_wins() -> None:
    first, second = Entry(b"k", b"1", 4, 0), Entry(b"k", b"2", 4, 0)
    assert compacted([[first], [second]], 1, drop=False) == [first]


def _shape(entry: Entry) -> tuple[bytes, int, int]:
    return entry.value, entry.seq, entry.flags & FLAG_TOMBSTONE
