"""Exports: counted, partitioned, and refused with a reason."""

import asyncio
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import shale
from shale.engine.location import DatabaseLocation
from shale.errors import InvalidRequestError, LatestRecordMissing
from shale.types import KeyRange
from shale_spark.export import export
from shale_spark.source.options import parse_where
from tests.integration.spark.checkpoint_names import checkpoint_names

COUNT = 300


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> DatabaseLocation:
    """Create a database of JSON values, most of them only in the WAL."""
    place = f"file://{tmp_path_factory.mktemp('export')}/db"

    async def write() -> None:
        async with shale.Db.open(place) as db:
            for number in range(COUNT):
                await db.put(b"k%03d" % number, b'{"n":%d,"kind":"%s"}' % (number, b"ab"[number % 2 :][:1]))
            await db.put(b"x", b"no JSON")

    asyncio.run(write())
    return parse_where({"url": place})


def test_parquet_with_columns_in_folders(spark: SparkSession, where: DatabaseLocation, tmp_path: Path) -> None:
    """Any tool reads it; the database keeps no trace of the export."""
    target = str(tmp_path / "out")
    result = export(
        spark,
        where,
        target,
        key_range=KeyRange.half_open(None, b"x"),
        schema="key string, n int, kind string",
        value_format="json",
        partition_by=["kind"],
    )
    assert result.rows == COUNT
    assert {path.name for path in Path(target).iterdir() if path.is_dir()} == {"kind=a", "kind=b"}
    found = spark.read.parquet(target)
    assert found.count() == COUNT
    assert found.agg({"n": "sum"}).collect()[0][0] == sum(range(COUNT))
    assert checkpoint_names(f"{where.store}/{where.root}") == []


def test_what_is_there_is_not_touched_unless_asked(
    spark: SparkSession, where: DatabaseLocation, tmp_path: Path
) -> None:
    """Appended rows are counted separately."""
    target = str(tmp_path / "out")
    for mode in ("error", "append", "overwrite"):
        assert export(spark, where, target, prefix=b"k00", mode=mode).rows == 10
    assert spark.read.parquet(target).count() == 10
    with pytest.raises(InvalidRequestError, match="the target exists"):
        export(spark, where, target, prefix=b"k00")


def test_files_of_text_are_counted_as_they_were_written(
    spark: SparkSession, where: DatabaseLocation, tmp_path: Path
) -> None:
    """A header is no row."""
    how = {"header": "true", "sep": ";"}
    for mode, rows in (("error", 10), ("append", 20)):
        target, columns = str(tmp_path / "out"), "key string, seq bigint"
        assert (
            export(spark, where, target, format="csv", prefix=b"k00", schema=columns, mode=mode, options=how).rows == 10
        )
        assert spark.read.options(**how).csv(target).count() == rows


@pytest.mark.parametrize("key_range", [KeyRange.half_open(b"b", b"a"), KeyRange.half_open(b"y", None)])
def test_nothing_is_exported_as_nothing(
    spark: SparkSession, where: DatabaseLocation, tmp_path: Path, key_range: KeyRange
) -> None:
    """An empty key range and an empty database give an empty export."""
    target = str(tmp_path / "out")
    assert export(spark, where, target, key_range=key_range, schema="key string").rows == 0
    assert spark.read.parquet(target).columns == ["key"]


def test_what_cannot_be_exported_is_said(spark: SparkSession, where: DatabaseLocation, tmp_path: Path) -> None:
    """The error is a Shale error that names the missing part."""
    target = str(tmp_path / "out")
    with pytest.raises(InvalidRequestError, match=r"delta needs the package io.delta:delta-spark_4\.\d_2.13"):
        export(spark, where, target, format="delta")
    with pytest.raises(InvalidRequestError, match="iceberg writes a table, by its name"):
        export(spark, where, target, format="iceberg")
    with pytest.raises(InvalidRequestError, match="no column 'colour'"):
        export(spark, where, target, partition_by=["colour"])
    with pytest.raises(LatestRecordMissing, match="/nowhere: no manifest"):
        export(spark, parse_where({"store": f"file://{tmp_path}", "path": "nowhere"}), target)
    assert not Path(target).exists() or not list(Path(target).glob("*.parquet"))
