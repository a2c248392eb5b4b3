"""The data set of ``shale demo`` as a DataFrame, with the same keys and JSON values of the columns that queries use."""

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from shale_cli.demo.flights import archive

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = "month int, carrier string, flight int, origin string, dest string, dep_delay int, distance long"
"""The columns of a value, as a Spark schema."""


def flights(spark: "SparkSession", directory: Path) -> "DataFrame":
    """Return every flight: ``key`` (binary) and the columns.

    Args:
        spark: a session.
        directory: where the data set is unpacked, because Spark reads no zip files.

    Raises:
        NotFoundError: the data set is not installed.
    """
    from pyspark.sql import functions as f

    with zipfile.ZipFile(archive()) as zipped:
        file = zipped.extract("flights.csv", directory)
    rows = spark.read.csv(file, header=True, nullValue="NA")
    key = f.encode(f.format_string("%s/%04d/%s", "carrier", f.col("flight").cast("int"), "time_hour"), "UTF-8")
    names_and_types = [each.split() for each in COLUMNS.split(", ")]
    return rows.select(key.alias("key"), *(f.col(name).cast(type_).alias(name) for name, type_ in names_and_types))
