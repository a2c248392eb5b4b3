"""What the formats of an export need of Spark, and what its errors mean.  Pure.

The packages of Delta and Iceberg are made for one minor version of Spark each: with another one they are found, and
fail somewhere in the middle because a class of Spark's has changed.
"""

import re

from shale.errors import InvalidRequestError, ShaleError
from shale_spark.failures import translated

_PACKAGES = {
    "delta": (
        "io.delta:delta-spark_{spark}_2.13",
        "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
    ),
    "iceberg": (
        "org.apache.iceberg:iceberg-spark-runtime-{spark}_2.13",
        "spark.sql.extensions=org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.<name>=org.apache.iceberg.spark.SparkCatalog",
    ),
}
"""Formats that Spark does not bring: the package, and the properties that it needs."""
_ABSENT = frozenset({"PATH_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA", "DELTA_TABLE_NOT_FOUND"})
_PRESENT = frozenset({"PATH_ALREADY_EXISTS", "TABLE_OR_VIEW_ALREADY_EXISTS", "DELTA_PATH_EXISTS"})
_CONDITION = re.compile(r"\[([A-Z][A-Z_]+)[].]")
_UNLIKE = re.compile(
    r"java\.lang\.(NoSuchMethodError|NoSuchFieldError|NoClassDefFoundError|AbstractMethodError"
    r"|IncompatibleClassChangeError)\b"
)
"""How Java says that code was compiled with other classes than it meets."""


def names_nothing(error: Exception) -> bool:
    """Whether an error says that there is nothing at a target, or nothing with rows."""
    return _condition(error) in _ABSENT


def explained(error: Exception, format_: str, target: str, spark_version: str) -> ShaleError:
    """What went wrong with an export, and what to do about it."""
    condition = _condition(error)
    if condition in _PRESENT:
        return InvalidRequestError(f"{target}: something is there already: choose mode overwrite or append")
    if format_ not in _PACKAGES:
        if condition == "DATA_SOURCE_NOT_FOUND":
            return InvalidRequestError(f"this Spark does not know the format {format_!r}")
        return translated(error)
    name, *properties = _PACKAGES[format_]
    package = name.format(spark=".".join(spark_version.split(".")[:2]))
    if condition == "DATA_SOURCE_NOT_FOUND":
        needed = " ".join(f"--conf {each}" for each in properties)
        return InvalidRequestError(
            f"format {format_} needs the package {package}: --conf spark.jars.packages={package}:<version> {needed}"
        )
    unlike = _UNLIKE.search(str(error))
    if unlike is not None:
        return InvalidRequestError(
            f"the package of format {format_} was made for another Spark than {spark_version} ({unlike[1]}): "
            f"take {package}, or a Spark that there is a package for (docs/spark_read.md)"
        )
    return translated(error)


def _condition(error: Exception) -> str | None:
    """What Spark calls the problem; errors that PySpark does not know by class have it in their text only."""
    found = _CONDITION.search(str(error))
    return found[1] if found is not None else None
