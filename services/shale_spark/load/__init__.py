"""Bulk load: a DataFrame becomes sorted SSTs and one commit."""

from shale_spark.load.bulk_load import LoadResult, load

__all__ = ["LoadResult", "load"]
