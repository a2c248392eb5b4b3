"""The Arrow schema of Spark columns."""

import pyarrow as pa
from pyspark.sql.types import BinaryType, LongType, StructType, TimestampType

from shale_spark.arrow import COLUMNS, arrow_schema


def test_the_columns_of_rows_are_what_rows_have() -> None:
    """Times are in UTC, in a session of any time zone."""
    schema = StructType().add("key", BinaryType()).add("value", BinaryType()).add("seq", LongType())
    schema = schema.add("create_ts", TimestampType()).add("expire_ts", TimestampType())
    assert arrow_schema(schema).equals(pa.schema(COLUMNS))
