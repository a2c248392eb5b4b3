"""Ending the Spark jobs of one piece of work from another thread.

A session's own tags will not do: outside of Connect each thread has its own, so that an interrupt from another thread
finds nothing (PySpark 4.3).  Those of the Spark context are known to all.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_remote(spark: "SparkSession") -> bool:
    """Whether the session is over Connect, where there is no context."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


@contextmanager
def tagged(spark: "SparkSession", tag: str) -> Iterator[None]:
    """Whatever this thread runs inside can be interrupted by the tag."""
    if is_remote(spark):
        add, remove = spark.addTag, spark.removeTag
    else:
        add, remove = spark.sparkContext.addJobTag, spark.sparkContext.removeJobTag
    add(tag)
    try:
        yield
    finally:
        remove(tag)


def interrupt(spark: "SparkSession", tag: str) -> None:
    """End what runs under a tag, in any thread.  Python workers that go on are killed by Spark after two seconds."""
    if is_remote(spark):
        spark.interruptTag(tag)
    else:
        spark.sparkContext.cancelJobsWithTag(tag)
