"""Columns and entries are two forms of the same rows."""

from hypothesis import given
from hypothesis import strategies as st

from shale.kernels.rows import EMPTY_ROWS, concat_rows, entries_from_rows, rows_from_entries
from shale.types import Entry
from tests.unit.kernels.strategies import ANY_ROWS


@given(ANY_ROWS, st.data())
def test_a_slice_holds_the_entries_of_its_place(entries: list[Entry], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(entries)))
    end = data.draw(st.integers(start, len(entries)))
    piece = rows_from_entries(entries).slice(start, end)
    assert entries_from_rows(piece) == entries[start:end]
    assert piece.size_bytes == sum(len(entry.key) + len(entry.value) for entry in entries[start:end])


@given(st.lists(ANY_ROWS, max_size=4), st.integers(0, 5))
def test_concat_keeps_order_also_of_slices(parts: list[list[Entry]], skip: int) -> None:
    joined = concat_rows([rows_from_entries(part).slice(min(skip, len(part)), len(part)) for part in parts])
    assert entries_from_rows(joined) == [entry for part in parts for entry in part[skip:]]


def test_no_rows() -> None:
    assert len(EMPTY_ROWS) == 0
    assert entries_from_rows(EMPTY_ROWS) == []
    assert concat_rows([EMPTY_ROWS, EMPTY_ROWS]) is EMPTY_ROWS
