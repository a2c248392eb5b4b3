"""Columns as objects, by the kernel and by its plain Python version."""

import gc
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shale.engine.scan.row_objects import (
    byte_strings,
    byte_strings_plain,
    rows_to_items,
    rows_to_items_plain,
    rows_to_list,
)
from shale.kernels.dispatch import use_kernels
from shale.kernels.rows import EMPTY_ROWS, I64, U8, Rows, rows_from_entries
from shale.types import Entry, Row
from tests.unit.kernels.strategies import ANY_ROWS

BYTE_STRINGS = pytest.mark.parametrize("cut", [byte_strings, byte_strings_plain])
ITEMS = pytest.mark.parametrize("make", [rows_to_items, rows_to_items_plain])
Cut = Callable[[U8, I64], list[bytes]]
Make = Callable[[Rows], list[tuple[bytes, bytes]]]


@pytest.fixture(autouse=True, scope="module")
def _kernels() -> None:
    if not use_kernels():
        pytest.skip("there are no compiled kernels")


@BYTE_STRINGS
@given(st.lists(st.binary(max_size=4), max_size=6), st.integers(0, 3), st.booleans())
def test_strings_are_cut_at_their_offsets(cut: Cut, strings: list[bytes], before: int, one_length: bool) -> None:
    """Also of none: many keys may be asked for of which no SST has a value."""
    if one_length:
        strings = [string.ljust(4, b"x") for string in strings]
    data = np.frombuffer(bytes(before) + b"".join(strings) + b"rest", np.uint8)
    offsets = np.cumsum([before, *map(len, strings)]).astype(np.int64)
    assert cut(data, offsets) == strings


@ITEMS
@given(ANY_ROWS, st.data())
def test_items_are_the_keys_and_values_of_a_slice(make: Make, entries: list[Entry], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(entries)))
    end = data.draw(st.integers(start, len(entries)))
    piece = rows_from_entries(entries).slice(start, end)
    assert make(piece) == [(entry.key, entry.value) for entry in entries[start:end]]


@ITEMS
def test_no_rows_are_no_items(make: Make) -> None:
    assert make(EMPTY_ROWS) == []


def test_columns_that_lie_scattered_are_read_all_the_same() -> None:
    data = np.frombuffer(b"a-b-c-d-", np.uint8)[::2]
    offsets = np.array([0, 9, 1, 9, 3, 9, 4], np.int64)[::2]
    assert byte_strings(data, offsets) == [b"a", b"bc", b"d"]


@given(ANY_ROWS)
def test_rows_have_the_fields_of_entries(entries: list[Entry]) -> None:
    assert rows_to_list(rows_from_entries(entries)) == [
        Row(
            entry.key,
            entry.value,
            entry.seq,
            entry.create_ts if entry.flags & 4 else None,
            entry.expire_ts if entry.flags & 2 else None,
        )
        for entry in entries
    ]


@pytest.mark.slow
def test_objects_are_referenced_by_their_list_only() -> None:
    rows = rows_from_entries([Entry(b"key-%d" % number, bytes(90), 1, 0, 0, 0) for number in range(3000)])
    count, items = 0, rows_to_items(rows)
    for item in items:
        count += sys.getrefcount(item) + sum(map(sys.getrefcount, item))
    assert count == len(items) * 7  # the list, the loop and the call; the tuple and the call, twice
    del item, items
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(20):
        rows_to_items(rows)
        byte_strings(rows.key_bytes, rows.key_offsets)
    gc.collect()
    assert sys.getallocatedblocks() - before < 1000


def test_strings_for_which_memory_does_not_suffice_end_the_work() -> None:
    """No byte of them is touched."""
    data, offsets = np.zeros(8, np.uint8), np.array([0, 3, 2**62], np.int64)
    with pytest.raises(MemoryError, match="2 rows"):
        byte_strings(data, offsets)
    rows = rows_from_entries([Entry(b"a", b"", 1, 0, 0, 0), Entry(b"b", b"", 1, 0, 0, 0)])
    with pytest.raises(MemoryError, match="2 rows"):
        rows_to_items(replace(rows, val_bytes=data, val_offsets=offsets))
    with pytest.raises(MemoryError, match="2 rows"):
        rows_to_items(replace(rows, key_bytes=data, key_offsets=offsets))
