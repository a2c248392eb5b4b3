"""A DataFrame becomes a database, or part of one, on real Spark: every row once, all or none."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import shale
from shale.errors import FencedError, InvalidDbState, InvalidRequestError
from shale_spark.load import load
from tests.integration.spark.load.load_rows import contents, expected, numbered, rows_of
from tests.interop.slatedb_databases import Shape, flush, open_folder, opened, scanned

EDGES = [b"\x00", b"\x00\x00", b"\x01", b"\x7f", b"\x7f\xff", b"\x80", b"\x80\x00", b"\xff", b"\xff\xff", b"k" * 65_535]


def ssts(folder: Path) -> int:
    return len(list(folder.glob("db/compacted/*.sst")))


def test_every_row_is_there_in_the_order_of_the_database(spark: SparkSession, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/db"
    edges = spark.createDataFrame([(key, b"edge") for key in EDGES], "key binary, value binary")
    df = numbered(spark, 20_000).select("key", "value").union(edges).repartition(3)
    result = load(df, url, partitions=5, sst_bytes="64KiB", compression="lz4")
    model = expected(df)
    rows = rows_of(url)
    assert [row.key for row in rows] == sorted(model)
    assert {row.key: row.value for row in rows} == model
    assert {row.seq for row in rows} == {1}
    assert (result.rows, result.seq, result.l0_ssts) == (20_010, 1, 0)
    assert result.ssts == ssts(tmp_path) > 5


@pytest.mark.parametrize("compression", ["zstd", pytest.param("none", marks=pytest.mark.soak)])
def test_slatedb_reads_and_continues_what_was_loaded(spark: SparkSession, tmp_path: Path, compression: str) -> None:
    df = numbered(spark, 3000).select("key", "value")
    load(df, f"file://{tmp_path}/db", partitions=2, compression=compression, ttl="1h")
    model = expected(df)

    async def scenario() -> None:
        async with opened(open_folder(tmp_path), "db", Shape()) as peer:
            rows = await scanned(peer)
            assert {row[0]: row[1] for row in rows} == model
            assert {row[4] - row[3] for row in rows} == {3_600_000}
            await peer.put(b"newest", b"x")
            await flush(peer)
            assert len(await scanned(peer)) == 3001

    asyncio.run(scenario())


def test_text_codecs_and_times(spark: SparkSession, tmp_path: Path) -> None:
    later = datetime.now(UTC) + timedelta(days=1)
    df = spark.createDataFrame(
        [("a", 1, "x", later), ("b", 2, None, None), ("c", 3, "gone", later - timedelta(days=2))],
        "id string, n int, s string, until timestamp",
    )
    result = load(df, f"file://{tmp_path}/db", key="id", value_format="json", expire_at="until")
    rows = rows_of(f"file://{tmp_path}/db")
    assert [(row.key, row.value) for row in rows] == [(b"a", b'{"n":1,"s":"x"}'), (b"b", b'{"n":2,"s":null}')]
    assert [row.expire_ts for row in rows] == [int(later.timestamp() * 1000), None]
    assert (result.rows, result.expired) == (2, 1)


def test_of_rows_with_one_key_one_is_chosen_or_the_key_is_named(spark: SparkSession, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/db"
    df = numbered(spark, 1000).select("key", f.concat(f.lit(b"1 "), "value").alias("value"), f.lit(1).alias("version"))
    twice = df.union(df.where("key < X'40'").select("key", f.lit(b"2").alias("value"), f.lit(2).alias("version")))
    with pytest.raises(InvalidRequestError, match=r"key '.*' occurs more than once"):
        load(twice, url, partitions=2)
    assert not (tmp_path / "db" / "manifest").exists()
    result = load(twice, url, partitions=2, duplicates="last", order_by="version")
    values = contents(url)
    assert result.repeated == len([key for key in values if key < b"\x40"]) > 0
    assert len(values) == result.rows == 1000
    assert all((value == b"2") == (key < b"\x40") for key, value in values.items())


def test_a_row_that_cannot_be_stored_is_named_or_put_aside(spark: SparkSession, tmp_path: Path) -> None:
    url, folder = f"file://{tmp_path}/db", str(tmp_path / "dead")
    bad = [(None, b"no key"), (b"", b"empty key"), (b"k" * 65_536, b"long key"), (b"null value", None)]
    df = numbered(spark, 30_000).select("key", "value").union(spark.createDataFrame(bad, "key binary, value binary"))
    with pytest.raises(InvalidRequestError, match=r"row with key .* and value .*: the (key|value) is"):
        load(df, url, partitions=2)
    assert not (tmp_path / "db" / "manifest").exists()
    result = load(df, url, partitions=2, dead_letters=folder)
    assert (result.rows, result.dead_letters) == (30_000, 4)
    dead = spark.read.parquet(folder).select("shale_value", "shale_reason").collect()
    assert {(row[0] and bytes(row[0]), row[1]) for row in dead} == {
        (b"no key", "the key is null"),
        (b"empty key", "the key is empty"),
        (b"long key", "the key is longer than 65535 bytes"),
        (None, "the value is null"),
    }
    assert len(contents(url)) == 30_000


class Picky:
    """A codec that rejects odd numbers with a reason."""

    def encode(self, row: Mapping[str, Any]) -> bytes:
        if row["id"] % 2:
            raise ValueError(f"{row['id']} is odd")
        return b"%d" % row["id"]

    def decode(self, value: bytes) -> Mapping[str, Any]:
        return {"id": int(value)}


@pytest.mark.parametrize("mode", ["create", "append"])
def test_a_row_that_the_codec_refuses_is_named_or_put_aside(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    url, folder = f"file://{tmp_path}/db", str(tmp_path / "dead")
    df = spark.range(0, 9).select(f.format_string("k%d", "id").alias("key"), "id")
    picky = {"value": "id", "value_format": f"{__name__}:Picky", "partitions": 2}
    if mode == "append":
        load(df.where("id % 2 = 0"), url, **picky)
    with pytest.raises(InvalidRequestError, match=r"row with key 'k[1357]': cannot be written as a value: ValueError"):
        load(df, url, mode=mode, **picky)
    result = load(df, url, mode=mode, dead_letters=folder, **picky)
    assert (result.rows, result.dead_letters) == (5, 4)
    dead = spark.read.parquet(folder).select("shale_key", "id", "shale_reason").collect()
    assert sorted((bytes(row[0]), row[1]) for row in dead) == [(b"k%d" % n, n) for n in (1, 3, 5, 7)]
    assert all(row[2].startswith("cannot be written as a value: ValueError") for row in dead)
    assert contents(url) == {b"k%d" % n: b"%d" % n for n in (0, 2, 4, 6, 8)}


def test_a_column_that_is_called_reason_is_put_aside_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    folder = str(tmp_path / "dead")
    df = spark.createDataFrame([(None, "damaged")], "id string, reason string")
    load(df, f"file://{tmp_path}/db", key="id", value_format="json", partitions=1, dead_letters=folder)
    (dead,) = spark.read.parquet(folder).collect()
    assert (dead.reason, dead.shale_reason) == ("damaged", "the key is null")


@pytest.mark.parametrize("name", ["shale_key", "shale_order", "shale_expire_ms", "Shale_Reason"])
def test_a_column_with_a_name_of_ours_is_taken_for_nothing_else(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Dead letters that are loaded again have such columns."""
    df = spark.createDataFrame([("a", 1, 2)], f"id string, {name} int, n int")
    with pytest.raises(InvalidRequestError, match=f"column '{name}' has a reserved name"):
        load(df, f"file://{tmp_path}/db", key="id", value_format="json")
    assert load(df, f"file://{tmp_path}/db", key="id", value=["n"], value_format="json").rows == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"key": "id"}, "column 'id' is bigint: keys and values are binary or string"),
        ({"key": "nothing"}, "there is no column 'nothing': the columns are key, value, id"),
        ({"expire_at": "key"}, "column 'key' is binary: an expiry is a timestamp"),
    ],
)
def test_columns_that_mean_nothing_are_refused(
    spark: SparkSession, tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        load(numbered(spark, 10), f"file://{tmp_path}/db", **arguments)
    assert list(tmp_path.iterdir()) == []


def test_no_rows_make_an_empty_database(spark: SparkSession, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/db"
    assert load(numbered(spark, 0), url).rows == 0
    assert contents(url) == {}
    with pytest.raises(InvalidDbState, match="there is a database"):
        load(numbered(spark, 10), url)


def test_a_small_append_makes_one_l0_whatever_spark_thinks_of_its_size(spark: SparkSession, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/db"
    assert load(numbered(spark, 1000), url).ssts == 2, "in a new database each core makes one"
    plain = numbered(spark, 1000).select("key", "value")
    listed = spark.createDataFrame(plain.rdd, plain.schema)
    joined = plain.crossJoin(spark.createDataFrame([(b"new",)] * 2, "other binary").rdd.toDF("other binary").limit(1))
    for number, df in enumerate((plain, listed, joined.select("key", f.col("other").alias("value"))), start=1):
        result = load(df, url, mode="append")
        assert (result.ssts, result.l0_ssts) == (1, number)
    assert contents(url) == dict.fromkeys(expected(plain), b"new")
    rows = [(*row, n) for n, row in enumerate(plain.collect())]
    wide = spark.createDataFrame(spark.sparkContext.parallelize(rows, 4), "key binary, value binary, n int")
    assert 2 <= load(wide.select("key", "value"), url, mode="append", sst_bytes="64KiB").ssts <= 4


def test_an_append_goes_on_top_and_a_writer_goes_on_after_it(spark: SparkSession, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/db"
    old, new = numbered(spark, 2000), numbered(spark, 2000, first=1000).withColumn("value", f.lit(b"new"))
    load(old, url, partitions=2)

    async def running() -> None:
        async with shale.Db.open(url, flush_interval=0) as db:
            await (await db.put(b"of the writer", b"x")).durable()
            refused = asyncio.to_thread(load, new, url, mode="append", partitions=2)
            with pytest.raises(InvalidDbState, match="writer epoch 1 has not closed the database"):
                await refused
            await (await db.put(b"of the writer", b"y")).durable()

    asyncio.run(running())
    result = load(new, url, mode="append", partitions=3)
    assert result.l0_ssts == 4
    model = expected(old) | expected(new) | {b"of the writer": b"y"}
    assert contents(url) == model

    async def continued() -> None:
        async with shale.Db.open(url, flush_interval=0) as db:
            assert (await db.put(b"newest", b"z")).seq == result.seq + 1

    asyncio.run(continued())
    assert contents(url) == model | {b"newest": b"z"}


def test_a_writer_fenced_during_a_load_stops_it(spark: SparkSession, tmp_path: Path) -> None:
    url, begun = f"file://{tmp_path}/db", tmp_path / "begun"
    load(numbered(spark, 100), url, partitions=1)

    def endless(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time

        for batch in batches:
            begun.touch()
            while True:
                time.sleep(0.05)
                yield batch.slice(0, 0)

    slow = numbered(spark, 100, first=200).select("key", "value").mapInArrow(endless, "key binary, value binary")

    async def take_over() -> None:
        while not begun.exists():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        async with shale.Db.open(url, flush_interval=0) as db:
            await db.put(b"of the new writer", b"x")

    other = threading.Thread(target=asyncio.run, args=[take_over()])
    other.start()
    with pytest.raises(FencedError):
        load(slow, url, mode="append", partitions=1)
    other.join()
    assert len(contents(url)) == 101
