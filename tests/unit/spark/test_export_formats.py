"""Spark's errors about a format, with advice."""

import pytest

from shale.errors import InvalidRequestError
from shale_spark.export_formats import export_error, is_target_missing

ABSENT = "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: {}."
UNLIKE = (
    "An error occurred while calling o82.save.\n"
    ": java.lang.NoSuchMethodError: 'void org.apache.spark.sql.execution.LogicalRDD.<init>(...)'"
)
CHANGED = ": java.lang.IncompatibleClassChangeError: Found interface org.apache.spark.sql.connector.catalog.View"


@pytest.mark.parametrize(
    ("text", "format_", "said"),
    [
        (ABSENT, "delta", "--conf spark.jars.packages=io.delta:delta-spark_4.1_2.13:<version> --conf spark.sql.ext"),
        (ABSENT, "iceberg", "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13"),
        (ABSENT, "parket", "this Spark does not know the format 'parket'"),
        (UNLIKE, "delta", r"the package of format delta was made for another Spark than 4.1.4 \(NoSuchMethodError\)"),
        (CHANGED, "iceberg", "made for another Spark than 4.1.4"),
        ("[PATH_ALREADY_EXISTS] Path file:/out already exists.", "parquet", "out: the target exists"),
        ("[DELTA_PATH_EXISTS] Cannot write to already existent path", "delta", "out: the target exists"),
    ],
)
def test_an_error_tells_what_to_do(text: str, format_: str, said: str) -> None:
    error = export_error(Exception(text.format(format_)), format_, "out", "4.1.4")
    assert isinstance(error, InvalidRequestError)
    with pytest.raises(InvalidRequestError, match=said):
        raise error


def test_a_target_that_is_not_there_is_not_an_error() -> None:
    """In mode append the first export creates it."""
    assert is_target_missing(Exception("[DELTA_TABLE_NOT_FOUND] Delta table `/out` doesn't exist."))
    assert is_target_missing(Exception("[PATH_NOT_FOUND] Path does not exist: file:/out."))
    assert not is_target_missing(Exception("[DELTA_FAILED_RECONSTRUCT] …"))
