"""Columns in Arrow's words, whichever PySpark says them."""

import pyarrow as pa
from pyspark.sql.types import BinaryType, LongType, StructType, TimestampType

from shale_spark.arrow import COLUMNS
from shale_spark.arrow_schema import arrow_schema


def test_the_columns_of_rows_are_what_rows_have() -> None:
    """Times among them in UTC, wherever the session is."""
    schema = StructType().add("key", BinaryType()).add("value", BinaryType()).add("seq", LongType())
    schema = schema.add("create_ts", TimestampType()).add("expire_ts", TimestampType())
    assert arrow_schema(schema).equals(pa.schema(COLUMNS))
