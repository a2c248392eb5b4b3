"""The sorting kernel against its plain Python version."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shale.engine.memtable import row_order
from shale.engine.memtable.row_order import merged_parts, newest_of_each, plain_order, plain_take_rows
from shale.kernels import sort
from shale.kernels.dispatch import use_kernels
from shale.kernels.rows import EMPTY_ROWS, entries_from_rows, rows_from_entries
from shale.types import Entry


@pytest.fixture(autouse=True, scope="module")
def _kernels() -> None:
    if not use_kernels():
        pytest.skip("there are no compiled kernels")


PIECES = st.sampled_from([b"", b"\x00", b"a", b"ab", b"abcdefgh", b"abcdefg\x00", b"\xff" * 9, b"k" * 30])
KEYS = st.builds(lambda left, right: left + right, PIECES, PIECES).filter(bool)


@given(keys=st.lists(KEYS, max_size=200), shift=st.integers(0, 3))
def test_order_and_rows_are_those_of_the_twin(keys: list[bytes], shift: int) -> None:
    entries = [Entry(key, key * (seq % 3), seq * 7 % 211 + 1, seq % 4, seq, -seq) for seq, key in enumerate(keys)]
    rows = rows_from_entries(entries)
    rows = rows.slice(min(shift, len(rows)), len(rows))
    order = sort.row_order(rows)
    assert order.tolist() == plain_order(rows).tolist()
    assert entries_from_rows(sort.take_rows(rows, order)) == entries_from_rows(plain_take_rows(rows, order))


@given(parts=st.lists(st.lists(KEYS, max_size=40), max_size=5), shift=st.integers(0, 2))
def test_parts_are_merged_as_if_they_were_one(parts: list[list[bytes]], shift: int) -> None:
    seqs = iter(range(1, 1000))
    entries = [[Entry(key, key * 2, seq := next(seqs), seq % 4, seq, -seq) for key in keys] for keys in parts]
    tables = [rows_from_entries(each) for each in entries]
    tables = [rows.slice(min(shift, len(rows)), len(rows)) for rows in tables]
    expected = [row for each in entries for row in each[shift:]]
    expected.sort(key=lambda row: (row.key, -row.seq))
    assert entries_from_rows(merged_parts(tables)) == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_order, "use_kernels", lambda: False)
        assert entries_from_rows(merged_parts(tables)) == expected


def test_many_keys_that_differ_late_only() -> None:
    shuffled = np.random.default_rng(3).permutation(5000).tolist()
    keys = [b"common prefix of all/" + b"x" * 30 * (number % 2) + b"%04d" % number for number in shuffled]
    rows = rows_from_entries([Entry(key, key[-4:], 1, 0) for key in keys])
    assert [row.key for row in entries_from_rows(sort.take_rows(rows, sort.row_order(rows)))] == sorted(keys)


@given(keys=st.lists(KEYS, max_size=60), shift=st.integers(0, 3))
def test_the_newest_row_of_each_key_stays(keys: list[bytes], shift: int) -> None:
    rows = rows_from_entries([Entry(key, b"%d" % place, 1, 0) for place, key in enumerate(keys)])
    rows = rows.slice(min(shift, len(rows)), len(rows))
    expected = {row.key: row.value for row in entries_from_rows(rows)}
    newest = newest_of_each(rows)
    assert [(row.key, row.value) for row in entries_from_rows(newest)] == sorted(expected.items())
    assert sort.is_ascending(rows) == (list(expected) == sorted(expected) and len(expected) == len(rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_order, "use_kernels", lambda: False)
        assert entries_from_rows(newest_of_each(rows)) == entries_from_rows(newest)


def test_no_rows() -> None:
    assert len(sort.row_order(EMPTY_ROWS)) == 0


def test_taking_rows_needs_no_more_than_their_memory() -> None:
    """A reader takes the rows of a whole memtable when SSTs replace the others."""
    rows = rows_from_entries([Entry(b"%08d" % seq, bytes(10_000), seq, 0, 0, 0) for seq in range(1, 1001)])
    order = np.arange(0, len(rows), 2, dtype=np.int64)
    tracemalloc.start()
    try:
        taken = row_order.take_rows(rows, order)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert taken.size_bytes == rows.size_bytes // 2
    assert peak_bytes < 1.5 * taken.size_bytes
