"""Changes as columns: the fields that each kind of change has."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from shale.errors import InvalidRequestError
from shale.kernels.rows import rows_from_entries
from shale.types import FLAG_CREATE_TS, FLAG_MERGE, FLAG_TOMBSTONE, Entry
from shale_spark.arrow import COLUMNS
from shale_spark.changes.columns import CHANGE_COLUMNS, ChangeColumns
from shale_spark.codecs import InvalidValue, OnDecodeError, value_codec
from tests.unit.kernels.strategies import ANY_ROWS

EVERYTHING = pa.schema([*COLUMNS.items(), *CHANGE_COLUMNS.items()])


def columns(
    schema: pa.Schema, value_format: str = "binary", on_decode_error: OnDecodeError = OnDecodeError.FAILFAST
) -> ChangeColumns:
    return ChangeColumns.of(schema, value_codec(value_format), value_format, on_decode_error)


ENTRIES = [
    Entry(b"a", json.dumps({"n": 1}).encode(), 5, FLAG_CREATE_TS, 1000),
    Entry(b"b", b"", 5, FLAG_TOMBSTONE | FLAG_CREATE_TS, 1000),
    Entry(b"a", b"+1", 6, FLAG_MERGE),
    Entry(b"c", json.dumps({"n": 3}).encode(), 7, 0),
]


def test_each_kind_of_change() -> None:
    batch = columns(EVERYTHING).batch(9, rows_from_entries(ENTRIES))
    assert batch.schema == EVERYTHING
    assert batch.column("key").to_pylist() == [b"a", b"b", b"a", b"c"]
    assert batch.column("value").to_pylist() == [b'{"n": 1}', None, b"+1", b'{"n": 3}']
    assert batch.column("op").to_pylist() == ["put", "delete", "merge", "put"]
    assert batch.column("seq").to_pylist() == [5, 5, 6, 7]
    assert batch.column("wal_id").to_pylist() == [9] * 4
    assert batch.column("create_ts").null_count == 2


def test_columns_of_values_are_those_of_puts() -> None:
    schema = pa.schema([("op", pa.string()), ("n", pa.int64()), ("key", pa.string()), ("value", pa.binary())])
    batch = columns(schema, "json").batch(9, rows_from_entries(ENTRIES))
    assert batch.column("n").to_pylist() == [1, None, None, 3]
    assert batch.column("key").to_pylist() == ["a", "b", "a", "c"]
    assert batch.column("value").to_pylist()[2] == b"+1"
    alone = columns(schema, "json").batch(9, rows_from_entries(ENTRIES[1:3]))
    assert alone.column("n").to_pylist() == [None, None]


@given(ANY_ROWS)
def test_any_rows(entries: list[Entry]) -> None:
    batch = columns(EVERYTHING).batch(1, rows_from_entries([e._replace(seq=e.seq >> 1) for e in entries]))
    assert batch.column("key").to_pylist() == [entry.key for entry in entries]
    assert batch.column("value").to_pylist() == [None if e.is_tombstone else e.value for e in entries]
    ops = np.array(batch.column("op").to_pylist())
    assert (ops == "delete").tolist() == [entry.is_tombstone for entry in entries]
    assert (ops == "merge").tolist() == [entry.flags & FLAG_MERGE != 0 for entry in entries]


@pytest.mark.parametrize(
    "field", [("op", pa.int32()), ("wal_id", pa.string()), ("seq", pa.string()), ("n", pa.int64())]
)
def test_columns_that_changes_cannot_have(field: tuple[str, pa.DataType]) -> None:
    with pytest.raises(InvalidRequestError, match=f"column '{field[0]}'"):
        columns(pa.schema([("key", pa.binary()), field]))


def test_a_column_that_must_not_be_null_is_refused_where_a_change_has_none() -> None:
    """Spark would rely on the schema, and read a value that does not exist."""
    schema = pa.schema([("key", pa.binary()), pa.field("value", pa.binary(), nullable=False)])
    with pytest.raises(InvalidValue, match="column 'value' is null for key b'b'"):
        columns(schema).batch(9, rows_from_entries(ENTRIES))
    assert columns(schema).batch(9, rows_from_entries(ENTRIES[2:])).column("value").null_count == 0
    of_values = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    with pytest.raises(InvalidValue, match="column 'n' is null for key b'a'"):
        columns(of_values, "json").batch(9, rows_from_entries(ENTRIES[2:3]))
