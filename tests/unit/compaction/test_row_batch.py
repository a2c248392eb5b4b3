"""The columns that a compaction filter gets."""

from dataclasses import fields

import numpy as np
import pytest

from shale.compaction.filters import RowBatch
from shale.kernels.rows import Rows, rows_from_entries
from shale.types import FLAG_CREATE_TS, FLAG_EXPIRE_TS, FLAG_MERGE, Entry
from tests.unit.iter.merge_inputs import CONTEXT

ENTRIES = [
    Entry(b"a", b"one", 9, 0, 0, 0),
    Entry(b"bb", b"", 8, FLAG_CREATE_TS, 7, 0),
    Entry(b"ccc", b"three", 7, FLAG_MERGE, 0, 0),
    Entry(b"d", b"4", 6, FLAG_EXPIRE_TS, 0, 11),
]


def test_columns():
    batch = RowBatch(rows_from_entries(ENTRIES), CONTEXT)
    assert len(batch) == 4
    assert batch.context is CONTEXT
    assert batch.keys == [b"a", b"bb", b"ccc", b"d"]
    assert batch.values == [b"one", b"", b"three", b"4"]
    assert batch.seq.tolist() == [9, 8, 7, 6]
    assert batch.key_sizes.tolist() == [1, 2, 3, 1]
    assert batch.value_sizes.tolist() == [3, 0, 5, 1]
    assert batch.create_ts.tolist() == [0, 7, 0, 0]
    assert batch.expire_ts.tolist() == [0, 0, 0, 11]
    assert batch.has_create_ts.tolist() == [False, True, False, False]
    assert batch.is_operand.tolist() == [False, False, True, False]
    assert batch.has_expire_ts.tolist() == [False, False, False, True]
    assert batch.is_operand.dtype == np.bool_


def test_a_filter_cannot_change_the_rows_and_the_compaction_still_can():
    rows = rows_from_entries(ENTRIES)
    rows = Rows(**{each.name: getattr(rows, each.name).copy() for each in fields(rows)})
    batch = RowBatch(rows, CONTEXT)
    for each in fields(rows):
        own, shown = getattr(rows, each.name), getattr(batch.rows, each.name)
        assert np.shares_memory(own, shown)
        with pytest.raises(ValueError, match="read-only"):
            shown[:] = 0
        assert own.flags.writeable


def test_a_batch_without_rows():
    batch = RowBatch(rows_from_entries([]), CONTEXT)
    assert (len(batch), batch.keys, batch.values) == (0, [], [])
    assert batch.key_sizes.tolist() == batch.has_create_ts.tolist() == []
