"""``format("shale")`` in a real session: columns, ranges, filters, snapshots, formats and errors."""

import asyncio
from pathlib import Path

import orjson
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as sql

import shale
from shale.env import Env
from shale.protocol.checkpoints import create_checkpoint
from shale.protocol.manifest_store import ManifestStore
from shale.store.connect import open_store
from shale_spark.errors import shale_error_of
from shale_spark.source.options import SparkReadOptions, parse_where
from shale_spark.source.snapshot import OWN_NAME
from shale_spark.source.snapshot_frame import snapshot
from tests.integration.spark.checkpoint_names import checkpoint_names

COUNT = 2000
FLUSHED = 1500
GONE = range(0, COUNT, 10)


def key(number: int) -> bytes:
    return b"user:%05d" % number


def value(number: int) -> bytes:
    return orjson.dumps({"n": number, "even": number % 2 == 0, "name": f"u{number}"})


async def write(url: str) -> None:
    """Write rows in several L0s, deleted ones among them, and a quarter of them only in the WAL."""
    async with shale.Db.open(url, l0_sst_size_bytes="32KiB", flush_interval=0) as db:
        for number in range(COUNT):
            await db.put(key(number), value(number))
            if number == FLUSHED:
                await db.flush("memtable")
        for number in GONE:
            await db.delete(key(number))
        await (await db.put(b"zz", value(COUNT))).durable()
        await (await db.delete(b"zz")).durable()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the URL of a database that was written and closed."""
    found = f"file://{tmp_path_factory.mktemp('read')}/db"
    asyncio.run(write(found))
    return found


@pytest.fixture
def reader(spark: SparkSession, url: str) -> DataFrameReader:
    """Return a DataFrame reader with small tasks."""
    return spark.read.format("shale").option("url", url).option("partition_bytes", "64KiB")


EXPECTED = {key(number): value(number) for number in range(COUNT) if number not in GONE}


def rows(frame: DataFrame) -> dict[bytes, bytes]:
    """Return the rows of one job, and check that no key is returned twice."""
    found = frame.collect()
    assert len({row["key"] for row in found}) == len(found)
    return {bytes(row["key"]): bytes(row["value"]) for row in found}


def keys(frame: DataFrame) -> list[bytes]:
    return sorted(bytes(row["key"]) for row in frame.collect())


def between(low: int, high: int) -> list[bytes]:
    return [each for each in EXPECTED if key(low) <= each < key(high)]


def test_every_row_in_many_tasks(reader: DataFrameReader) -> None:
    """Also rows that are only in the WAL; sequence numbers and times are columns."""
    found = reader.load().withColumn("task", sql.spark_partition_id()).collect()
    assert {bytes(row["key"]): bytes(row["value"]) for row in found} == EXPECTED
    assert len(found) == len(EXPECTED)
    assert len({row["task"] for row in found}) > 1
    (first,) = [row for row in found if row["key"] == key(1)]
    assert first["seq"] == 2
    assert first["create_ts"] is not None
    assert first["expire_ts"] is None


def test_ranges_and_keys_are_options(reader: DataFrameReader) -> None:
    """Ranges are scanned; single keys are looked up, and absent ones are not returned."""
    bare = reader.schema("key binary")
    assert keys(bare.option("keys", "user:00001,user:00002,user:00010,absent").load()) == [key(1), key(2)]


def test_filters_are_right_however_a_frame_is_used(reader: DataFrameReader) -> None:
    """Spark 4.1 to 4.3 read with the filters of another query of the same DataFrame if a source accepts filters."""
    frame = reader.schema("key binary").load()
    low, high = (sql.col("key") < key(50)), (sql.col("key") >= key(1900))
    assert keys(frame.filter(low)) == between(0, 50)
    assert len(keys(frame)) == len(EXPECTED)
    assert keys(frame.filter(low).union(frame.filter(high))) == between(0, 50) + between(1900, COUNT)


def test_pushdown_reads_only_what_filters_ask_for(reader: DataFrameReader) -> None:
    """One query per DataFrame; Spark does not apply pushed filters again."""
    pushing = reader.option("pushdown", "true")
    part = pushing.load().filter((sql.col("key") >= key(100)) & (sql.col("key") < key(200)) & (sql.length("value") > 0))
    assert "Filter" in plan_of(part)
    assert "key" not in plan_of(part).partition("Filter")[2].splitlines()[0]
    assert rows(part) == {each: EXPECTED[each] for each in between(100, 200)}
    text = pushing.schema("key string").load()
    assert len(text.filter(sql.col("key").startswith("user:0001")).collect()) == 9
    chosen = pushing.schema("key binary").load().filter(sql.col("key").isin(key(7), key(8), b"x"))
    assert keys(chosen) == [key(7), key(8)]


def test_spark_still_mixes_up_the_filters_of_one_frame(reader: DataFrameReader) -> None:
    """The reason for ``pushdown`` being off by default: once this fails, it may be on (docs/how-to/spark-read.md)."""
    frame = reader.option("pushdown", "true").schema("key binary").load()
    assert keys(frame.filter(sql.col("key") == key(7))) == [key(7)]
    assert keys(frame) == [key(7)]


def plan_of(frame: DataFrame) -> str:
    """Return Spark's physical plan as text."""
    return str(frame._jdf.queryExecution().executedPlan().toString())  # type: ignore[attr-defined]


def test_values_become_columns(reader: DataFrameReader) -> None:
    """By the requested schema."""
    frame = reader.option("value_format", "json").schema("n bigint, even boolean, key string").load()
    found = [row.asDict() for row in frame.collect()]
    assert sorted(found, key=lambda row: row["n"]) == [
        {"n": number, "even": number % 2 == 0, "key": key(number).decode()}
        for number in range(COUNT)
        if number not in GONE
    ]


def test_bad_values_are_named_or_kept(reader: DataFrameReader, spark: SparkSession, tmp_path: Path) -> None:
    """The key is in the error's one line; permissive mode keeps the bytes."""
    place = f"file://{tmp_path}/db"

    async def one_bad() -> None:
        async with shale.Db.open(place) as db:
            await db.put(b"good", b'{"n":1}')
            await db.put(b"bad", b"{")

    asyncio.run(one_bad())
    base = spark.read.format("shale").option("url", place).option("value_format", "json")
    with pytest.raises(PySparkException) as caught:
        base.schema("n bigint").load().collect()
    assert str(shale_error_of(caught.value)).startswith("the value of key b'bad' is not json of this schema")
    assert "the value of key b'bad'" in str(caught.value).splitlines()[1]
    found = base.option("mode", "permissive").schema("key binary, n bigint, _corrupt_record binary").load().collect()
    assert sorted((bytes(row[0]), row[1], row[2] and bytes(row[2])) for row in found) == [
        (b"bad", None, b"{"),
        (b"good", 1, None),
    ]


def test_a_frame_shows_one_state(spark: SparkSession, tmp_path: Path) -> None:
    """It is planned once, and read twice while the database changes."""
    place = f"file://{tmp_path}/db"

    async def put(*keys: bytes) -> None:
        async with shale.Db.open(place) as db:
            for each in keys:
                await db.put(each, b"")

    asyncio.run(put(b"a", b"b"))
    options = SparkReadOptions(where=parse_where({"url": place}))
    with snapshot(spark, options) as frame:
        assert len(keys(frame)) == 2
        asyncio.run(put(b"c"))
        assert len(keys(frame)) == 2
        assert checkpoint_names(place) == [OWN_NAME]
    assert checkpoint_names(place) == []
    assert len(keys(spark.read.format("shale").load(place))) == 3


def test_a_checkpoint_is_read_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    """By its id."""
    place = f"file://{tmp_path}/db"

    async def scenario() -> str:
        async with shale.Db.open(place) as db:
            await db.put(b"a", b"")
        stored = await ManifestStore(open_store(f"file://{tmp_path}"), "db", Env.system()).load()
        checkpoint = await create_checkpoint(stored, Env.system(), lifetime_ms=None)
        async with shale.Db.open(place) as db:
            await db.put(b"b", b"")
        return str(checkpoint.id)

    checkpoint = asyncio.run(scenario())
    frame = spark.read.format("shale").option("url", place).option("checkpoint", checkpoint).load()
    assert [bytes(row.key) for row in frame.collect()] == [b"a"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"colour": "red"}, "colour: no such option of the data source shale"),
        ({"checkpoint": "00000000-0000-0000-0000-000000000005"}, "checkpoint 00000000-0000-0000-0000-000000000005"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    spark: SparkSession, url: str, options: dict[str, str], message: str
) -> None:
    """When a frame is loaded, and when a query is planned."""
    with pytest.raises(PySparkException) as caught:
        spark.read.format("shale").option("url", url).options(**options).load().collect()
    assert message in str(shale_error_of(caught.value))
    assert "Traceback" not in str(caught.value)
