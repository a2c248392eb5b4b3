"""What a task hands to Spark: the record batches of one plan."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql.types import StructType

from shale.engine.arrow import in_batches
from shale_spark.arrow_schema import arrow_schema
from shale_spark.source.columns import Columns
from shale_spark.source.filters import KeySet
from shale_spark.source.options import ReadOptions
from shale_spark.source.plan import ReadPlan
from shale_spark.source.reading import read_rows

_ROWS_MAX = 64 * 1024
_BYTES_MAX = 16 * 1024 * 1024


def batches(plan: ReadPlan, columns: Columns) -> Iterator[Any]:
    """Record batches of bounded size, in the order of their keys."""
    for rows in read_rows(plan):
        for part in in_batches(rows, rows_max=_ROWS_MAX, bytes_max=_BYTES_MAX):
            yield columns.batch(part)


def columns_of(schema: StructType, options: ReadOptions) -> Columns:
    """The columns that a DataFrame asks for.

    Raises:
        InvalidRequestError: rows cannot have them.
    """
    return Columns.of(arrow_schema(schema), options.codec(), options.value_format, options.on_bad)


def wanted_keys(options: ReadOptions) -> KeySet:
    """The keys that the options ask for."""
    wanted = KeySet(options.key_range)
    return wanted if options.keys is None else wanted.among(options.keys)
