"""``df.write.format("shale")``: rows through a writer daemon, and databases that are built."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from shale.errors import InvalidRequestError
from shale_spark.errors import shale_error_of
from tests.integration.daemons.daemon_process import running
from tests.integration.spark.load.load_rows import contents, expected, numbered, rows_of


def test_rows_go_through_a_writer(spark: SparkSession, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/db"
    df = numbered(spark, 5000)
    arguments = ("--url", url, "--port", "0", "--set", "flush_interval=0")
    token = {"SHALE_HTTP__BEARER_TOKEN": "secret"}
    with running("shale_writer", *arguments, log=tmp_path / "log", env=token) as daemon:
        write = df.write.format("shale").mode("append").option("batch_rows", "500")
        write = write.option("endpoint", f"http://127.0.0.1:{daemon.port('port')}")
        with pytest.raises(PySparkException) as refused:
            write.option("token", "wrong").save()
        assert "the bearer token is unknown" in str(shale_error_of(refused.value))
        assert "Traceback" not in str(refused.value)
        write.option("token", "secret").option("ttl", "1h").save()
        daemon.stop()
    assert contents(url) == expected(df)
    assert {row.expire_ts - row.create_ts for row in rows_of(url) if row.expire_ts and row.create_ts} == {3_600_000}


def test_sorted_rows_build_a_database(spark: SparkSession, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/db"
    df = numbered(spark, 5000)
    ordered = df.repartitionByRange(3, "key").sortWithinPartitions("key")
    ordered.write.format("shale").mode("append").option("mode", "build").option("compression", "zstd").save(url)
    assert contents(url) == expected(df)
    assert {row.seq for row in rows_of(url)} == {1}


@pytest.mark.soak  # what a task does with such rows is tested without Spark
def test_rows_out_of_order_build_nothing(spark: SparkSession, tmp_path: Path) -> None:
    write = numbered(spark, 1000).write.format("shale").mode("append").option("mode", "build")
    with pytest.raises(PySparkException) as refused:
        write.save(f"file://{tmp_path}/db")
    error = shale_error_of(refused.value)
    assert isinstance(error, InvalidRequestError)
    assert "the rows are not sorted by key" in str(error)
    assert "Traceback" not in str(refused.value)
    assert not (tmp_path / "db" / "manifest").exists()


@pytest.mark.parametrize("mode", ["append", "build"])
def test_rows_that_cannot_be_stored_are_put_aside(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    url, folder = f"file://{tmp_path}/db", f"file://{tmp_path}/rejected"
    df = spark.sql(
        "SELECT CASE WHEN id % 10 = 3 THEN NULL ELSE format_string('%05d', id) END key, 'v' value FROM range(100)"
    )
    write = df.repartition(1).sortWithinPartitions("key").write.format("shale").mode("append").option("mode", mode)
    write = write.option("dead_letters", folder)
    if mode == "build":
        write.save(url)
    else:
        arguments = ("--url", url, "--port", "0", "--set", "flush_interval=0")
        with running("shale_writer", *arguments, log=tmp_path / "log") as daemon:
            write.option("endpoint", f"http://127.0.0.1:{daemon.port('port')}").save()
            daemon.stop()
    assert len(contents(url)) == 90
    aside = spark.read.parquet(f"{folder}/*")
    assert [row["shale_reason"] for row in aside.collect()] == ["the key is null"] * 10


def test_partitions_that_overlap_build_nothing(spark: SparkSession, tmp_path: Path) -> None:
    ordered = numbered(spark, 1000).sortWithinPartitions("key")
    with pytest.raises(PySparkException) as refused:
        ordered.write.format("shale").mode("append").option("mode", "build").save(f"file://{tmp_path}/db")
    assert "meet at key" in str(shale_error_of(refused.value))
    assert "Traceback" not in str(refused.value)
    assert not (tmp_path / "db" / "manifest").exists()


def test_what_cannot_be_is_said_at_once(spark: SparkSession) -> None:
    with pytest.raises(PySparkException) as refused:
        numbered(spark, 1).write.format("shale").mode("append").option("batches", "3").save()
    error = shale_error_of(refused.value)
    assert isinstance(error, InvalidRequestError)
    assert "batches: no such option" in str(error)


@pytest.mark.soak
def test_rows_are_not_replaced_as_a_whole(spark: SparkSession, tmp_path: Path) -> None:
    write = numbered(spark, 1).write.format("shale").mode("overwrite").option("mode", "build")
    with pytest.raises(PySparkException) as refused:
        write.save(f"file://{tmp_path}/db")
    assert "rows of a database are not replaced as a whole" in str(shale_error_of(refused.value))
