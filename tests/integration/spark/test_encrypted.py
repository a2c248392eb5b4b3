"""An encrypted database on Spark: executors read the keys from the named file; without it all operations fail."""

import asyncio
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import shale
from shale.engine.location import DatabaseLocation, resolve
from shale_spark.load.bulk_load import load
from shale_spark.scrub import scrub

SECRET = b"only the owner reads this"


def place(url: str, keys: Path) -> DatabaseLocation:
    return resolve(url, block_transformer=shale.AesGcm.from_file(keys))


def test_load_scan_follow_and_scrub(spark: SparkSession, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"k1 {bytes(range(32)).hex()}\n")
    url = f"file://{tmp_path}/store/db"
    frame = spark.createDataFrame([(b"a%03d" % row, SECRET) for row in range(300)], "key binary, value binary")
    assert load(frame, place(url, keys)).rows == 300

    async def write() -> None:
        async with shale.Db.open(url, block_transformer=shale.AesGcm.from_file(keys)) as db:
            await (await db.put(b"b", SECRET)).durable()
            await db.close("wal")

    asyncio.run(write())
    reader = spark.read.format("shale").option("store.encryption_key_file", str(keys))
    rows = reader.load(url).collect()
    assert len(rows) == 301
    assert {bytes(row["value"]) for row in rows} == {SECRET}
    assert scrub(spark, place(url, keys)).is_sound
    assert not [path for path in (tmp_path / "store").rglob("*") if path.is_file() and SECRET in path.read_bytes()]
    with pytest.raises((PySparkException, shale.ShaleError), match=r"\.sst"):
        spark.read.format("shale").load(url).collect()
    assert not scrub(spark, url).is_sound
