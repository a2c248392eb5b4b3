"""Rows become the columns of a schema."""

from typing import Any

import pyarrow as pa
import pytest

from shale.errors import InvalidRequestError
from shale.kernels.rows import Rows, rows_from_entries
from shale.types import FLAG_CREATE_TS, FLAG_EXPIRE_TS, Entry
from shale_spark.arrow import TIMESTAMP
from shale_spark.codecs import InvalidValue, OnDecodeError, value_codec
from shale_spark.source.columns import CORRUPT, ReadColumns, default_schema

ROWS = rows_from_entries(
    [
        Entry(b"a", b'{"n":1}', 4, FLAG_CREATE_TS, 1000),
        Entry(b"\xff", b"nonsense", 5, FLAG_CREATE_TS | FLAG_EXPIRE_TS, 2000, 3000),
        Entry(b"c", b'{"n":3}', 6, 0),
    ]
)
GOOD = ROWS.slice(2, 3)


def columns(
    *fields: Any, value_format: str = "json", on_decode_error: OnDecodeError = OnDecodeError.PERMISSIVE
) -> ReadColumns:
    return ReadColumns.of(pa.schema(list(fields)), value_codec(value_format), value_format, on_decode_error)


def read(rows: Rows, *fields: Any, **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = columns(*fields, **options).batch(rows).to_pylist()
    return found


def test_columns_come_in_the_order_of_the_schema() -> None:
    """Those of the row and those of the value; ``value`` only on request."""
    batch = columns(("n", pa.int64()), ("seq", pa.int64()), ("key", pa.binary())).batch(ROWS)
    assert batch.schema.names == ["n", "seq", "key"]
    assert batch.to_pylist()[0] == {"n": 1, "seq": 4, "key": b"a"}


def test_what_is_not_understood_is_kept_in_its_column() -> None:
    """The column is null for rows that were decoded."""
    found = read(ROWS, ("n", pa.int64()), (CORRUPT, pa.binary()))
    assert found == [{"n": 1, CORRUPT: None}, {"n": None, CORRUPT: b"nonsense"}, {"n": 3, CORRUPT: None}]


def test_failfast_names_the_key() -> None:
    """Also if keys were not requested."""
    with pytest.raises(InvalidValue, match=r"key b'\\xff' is not json of this schema: "):
        read(ROWS, ("n", pa.int64()), on_decode_error=OnDecodeError.FAILFAST)
    assert read(GOOD, ("n", pa.int64()), on_decode_error=OnDecodeError.FAILFAST) == [{"n": 3}]


def test_text_keys_and_values() -> None:
    """Null, or an error, for bytes that are not UTF-8."""
    fields = (("key", pa.string()), ("value", pa.string()))
    found = read(ROWS, *fields, value_format="binary")
    assert [row["key"] for row in found] == ["a", None, "c"]
    assert found[1]["value"] == "nonsense"
    with pytest.raises(InvalidValue, match=r"key b'\\xff' is not UTF-8: read key as binary"):
        read(ROWS, *fields, on_decode_error=OnDecodeError.FAILFAST, value_format="binary")


def test_a_column_that_must_not_be_null_is_not() -> None:
    """Spark relies on the schema."""
    with pytest.raises(InvalidValue, match=r"column 'n' is null for key b'\\xff'"):
        read(ROWS, pa.field("n", pa.int64(), nullable=False))
    batch = columns(pa.field("n", pa.int64(), nullable=False)).batch(GOOD)
    assert not batch.schema.field("n").nullable


@pytest.mark.parametrize(
    ("field", "value_format", "message"),
    [
        (("seq", pa.string()), "binary", "column 'seq' is int64, not string"),
        (("key", pa.int64()), "binary", "column 'key' is binary or string, not int64"),
        (("create_ts", pa.int64()), "binary", "'create_ts' is timestamp"),
        (("n", pa.int64()), "binary", "column 'n': values of format binary have no columns"),
        (("n", pa.binary()), "json", "'n' is binary"),
        ((CORRUPT, pa.binary()), "json", "needs columns that are decoded"),
    ],
)
def test_a_schema_that_rows_cannot_have_is_refused(field: Any, value_format: str, message: str) -> None:
    """Before any row is read."""
    with pytest.raises(InvalidRequestError, match=message):
        columns(field, value_format=value_format)


def test_formats_with_columns_need_a_schema() -> None:
    """The other formats have a fixed one."""
    assert "value string" in default_schema("utf8")
    assert "value binary" in default_schema("binary")
    with pytest.raises(InvalidRequestError, match="schema"):
        default_schema("json")
    assert columns(("expire_ts", TIMESTAMP), value_format="binary").batch(ROWS).column(0).null_count == 2
