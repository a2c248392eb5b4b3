"""Rows to load, and the rows that a database then has."""

import asyncio

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import shale
from shale.types import Row


def rows_of(url: str) -> list[Row]:
    async def read() -> list[Row]:
        async with shale.DbReader.open(url) as reader:
            return [row async for row in reader.scan()]

    return asyncio.run(read())


def contents(url: str) -> dict[bytes, bytes]:
    return {row.key: row.value for row in rows_of(url)}


def numbered(spark: SparkSession, count: int, first: int = 0) -> DataFrame:
    """Keys in no order: the first bytes of a digest."""
    digest = f.unhex(f.sha2(f.col("id").cast("string"), 256))
    return spark.range(first, first + count, 1, 4).select(
        f.substring(digest, 1, 12).alias("key"), f.concat(digest, digest, digest).alias("value"), "id"
    )


def expected(df: DataFrame) -> dict[bytes, bytes]:
    return {bytes(row["key"]): bytes(row["value"]) for row in df.select("key", "value").collect()}
