"""Packages that export formats need in Spark, and the meaning of their errors.  Pure.

The packages of Delta and Iceberg are built for one minor version of Spark each.  With another version they load and
then fail because a class of Spark has changed.
"""

import re

from shale.errors import InvalidRequestError, ShaleError
from shale_spark.errors import shale_error_of

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
"""Formats that are not part of Spark: the package, and the properties it needs."""
_ABSENT = frozenset({"PATH_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA", "DELTA_TABLE_NOT_FOUND"})
_PRESENT = frozenset({"PATH_ALREADY_EXISTS", "TABLE_OR_VIEW_ALREADY_EXISTS", "DELTA_PATH_EXISTS"})
_CONDITION = re.compile(r"\[([A-Z][A-Z_]+)[].]")
_UNLIKE = re.compile(
    r"java\.lang\.(NoSuchMethodError|NoSuchFieldError|NoClassDefFoundError|AbstractMethodError"
    r"|IncompatibleClassChangeError)\b"
)
"""Java errors of code that was compiled against other classes."""


def is_target_missing(error: Exception) -> bool:
    """Return whether an error means that the target does not exist, or has no rows."""
    return _condition(error) in _ABSENT


def export_error(error: Exception, format_: str, target: str, spark_version: str) -> ShaleError:
    """Return the error of an export, with what to do about it."""
    condition = _condition(error)
    if condition in _PRESENT:
        return InvalidRequestError(f"{target}: the target exists: choose mode overwrite or append")
    if format_ not in _PACKAGES:
        if condition == "DATA_SOURCE_NOT_FOUND":
            return InvalidRequestError(f"this Spark does not know the format {format_!r}")
        return shale_error_of(error)
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
            f"take {package}, or a Spark that there is a package for (docs/how-to/spark-read.md)"
        )
    return shale_error_of(error)


def _condition(error: Exception) -> str | None:
    """Return Spark's name of the error condition, which some errors have only in their text."""
    found = _CONDITION.search(str(error))
    return found[1] if found is not None else None
