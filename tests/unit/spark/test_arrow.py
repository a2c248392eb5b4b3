"""Rows become Arrow batches and come back, with any values and any offset in their buffers."""

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shale.engine.arrow.batches import in_batches
from shale.errors import InvalidRequestError
from shale.kernels.rows import Rows, concat_rows, entries_from_rows, rows_from_entries
from shale.types import FLAG_CREATE_TS, FLAG_EXPIRE_TS, FLAG_TOMBSTONE, Entry
from shale_spark.arrow import COLUMNS, batch_to_rows, rows_to_batch

MS = st.integers(-(2**50), 2**50)


@st.composite
def entries(draw: Any) -> Entry:
    """Return a row as any writer may have stored it."""
    flags = draw(st.sampled_from([0, FLAG_CREATE_TS, FLAG_EXPIRE_TS, FLAG_CREATE_TS | FLAG_EXPIRE_TS]))
    return Entry(
        draw(st.binary(min_size=1, max_size=9)),
        draw(st.binary(max_size=20)),
        draw(st.integers(0, 2**63 - 1)),
        flags,
        draw(MS) if flags & FLAG_CREATE_TS else 0,
        draw(MS) if flags & FLAG_EXPIRE_TS else 0,
    )


@given(st.lists(entries(), max_size=20), st.integers(0, 20), st.integers(0, 20))
def test_rows_survive_the_way_to_arrow_and_back(written: list[Entry], start: int, count: int) -> None:
    """Every column of every row, for any slice of rows."""
    rows = rows_from_entries(written).slice(min(start, len(written)), min(start + count, len(written)))
    batch = rows_to_batch(rows, list(COLUMNS))
    batch.validate(full=True)
    assert entries_from_rows(batch_to_rows(batch)) == entries_from_rows(rows)


def test_keys_and_values_are_not_copied() -> None:
    """An Arrow batch shares the memory of its rows, and rows that of their batch."""
    rows = rows_from_entries([Entry(b"key%d" % i, b"v" * i, i + 1, 0) for i in range(9)])
    batch = rows_to_batch(rows.slice(2, 7), ["value", "key"])
    address = batch.column("value").buffers()[2].address
    assert address == rows.val_bytes.ctypes.data + int(rows.val_offsets[2])
    assert batch_to_rows(batch).val_bytes.ctypes.data == address


@pytest.mark.parametrize("form", [pa.binary(), pa.string(), pa.large_binary(), pa.large_string(), pa.binary_view()])
def test_all_forms_of_strings_are_taken(form: Any) -> None:
    """Also slices of an array."""
    keys = pa.array(["a", "bb", "ccc", "d"], pa.string()).cast(form)[1:]
    batch = pa.RecordBatch.from_arrays([keys, pa.array([b"1", None, b"3"])], names=["key", "value"])
    assert entries_from_rows(batch_to_rows(batch)) == [
        Entry(b"bb", b"1", 0, 0),
        Entry(b"ccc", b"", 0, FLAG_TOMBSTONE),
        Entry(b"d", b"3", 0, 0),
    ]


def test_a_null_that_covers_bytes_leaves_none_in_the_tombstone() -> None:
    """Arrow allows bytes under a null; tombstones have empty values."""
    values = pa.Array.from_buffers(
        pa.binary(), 2, [pa.py_buffer(b"\x02"), pa.py_buffer(np.array([0, 3, 5], np.int32)), pa.py_buffer(b"abcde")]
    )
    batch = pa.RecordBatch.from_arrays([pa.array([b"x", b"y"]), values], names=["key", "value"])
    assert [entry.value for entry in entries_from_rows(batch_to_rows(batch))] == [b"", b"de"]


def test_times_and_given_sequence_numbers() -> None:
    """Times are rounded down to whole milliseconds, and absent times stay absent."""
    when = dt.datetime(2024, 5, 1, 12, 0, 0, 1999, tzinfo=dt.UTC)
    batch = pa.RecordBatch.from_arrays(
        [pa.array([b"x", b"y"]), pa.array([b"", b""]), pa.array([when, None]), pa.array([None, 7], pa.int64())],
        names=["key", "value", "create_ts", "expire_ts"],
    )
    first, second = entries_from_rows(batch_to_rows(batch, seq=np.array([4, 9], np.uint64)))
    assert first == Entry(b"x", b"", 4, FLAG_CREATE_TS, int(when.timestamp() * 1000), 0)
    assert second == Entry(b"y", b"", 9, FLAG_EXPIRE_TS, 0, 7)


def test_a_stamp_beyond_what_arrow_can_say_is_the_last_one() -> None:
    """SlateDB stores any 64 bits."""
    rows = rows_from_entries([Entry(b"x", b"", 1, FLAG_EXPIRE_TS, 0, 2**63 - 1)])
    stamp = rows_to_batch(rows, ["expire_ts"]).column(0).cast(pa.int64())[0].as_py()
    assert stamp == (2**63 - 1) // 1000 * 1000


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"key": pa.array([b"x"])}, "no column 'value'"),
        ({"key": pa.array([1]), "value": pa.array([b""])}, "'key' is int64"),
        ({"key": pa.array([b"x", None]), "value": pa.array([b"", b""])}, "row 1 has no key"),
        ({"key": pa.array([b"x"]), "value": pa.array([b""]), "seq": pa.array(["1"])}, "'seq'"),
        ({"key": pa.array([b"x"]), "value": pa.array([b""]), "expire_ts": pa.array(["1"])}, "'expire_ts' is string"),
    ],
)
def test_what_is_no_row_is_refused(columns: dict[str, Any], message: str) -> None:
    """The error names the column or the row."""
    with pytest.raises(InvalidRequestError, match=message):
        batch_to_rows(pa.RecordBatch.from_pydict(columns))


@given(st.lists(st.integers(0, 30), max_size=30), st.integers(1, 9), st.integers(1, 64))
def test_batches_are_bounded_and_lose_nothing(lengths: list[int], rows_max: int, bytes_max: int) -> None:
    """One row alone may be larger than a batch."""
    rows: Rows = rows_from_entries([Entry(b"k", b"v" * n, i, 0) for i, n in enumerate(lengths)])
    batches = list(in_batches(rows, rows_max=rows_max, bytes_max=bytes_max))
    assert entries_from_rows(concat_rows(batches)) == entries_from_rows(rows)
    for batch in batches:
        assert 1 <= len(batch) <= rows_max
        assert len(batch) == 1 or batch.size_bytes <= bytes_max
