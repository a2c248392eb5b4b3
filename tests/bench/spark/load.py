"""Bulk load on Spark against the same rows through a writer daemon (docs/how-to/spark-load.md)."""

import tempfile
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from tests.bench.line import BenchLine
from tests.integration.daemons.daemon_process import running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

ROWS = 1_000_000
ROUNDS = 3
ROW_BYTES = 116


def lines(spark: "SparkSession", *, rows: int = ROWS, rounds: int = ROUNDS) -> "list[BenchLine]":
    """Megabytes of keys and values a second: 16-byte keys in no order, 100-byte values, read from Parquet."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        df = _source(spark, rows, str(folder / "source"))
        loads, writes = [], []
        for turn in range(-1, rounds):  # the first one warms workers and kernels, and does not count
            loaded = _load_s(df, folder / f"load{turn}")
            written = _write_s(df, folder / f"write{turn}")
            if turn >= 0:
                loads.append(loaded)
                writes.append(written)
    megabytes = rows * ROW_BYTES / 1e6
    return [
        BenchLine(
            name=f"bulk load of {megabytes:.0f} MB | df.write through a writer",
            ours=megabytes / median(loads),
            reference=megabytes / median(writes),
            unit="MB/s",
            target=">= 3x",
        )
    ]


def _source(spark: "SparkSession", rows: int, path: str) -> "DataFrame":
    from pyspark.sql import functions as f

    digest = f.sha2(f.col("id").cast("string"), 512)
    made = spark.range(0, rows, 1, 8).select(
        f.substring(f.unhex(digest), 1, 16).alias("key"), f.substring(digest, 1, 100).cast("binary").alias("value")
    )
    made.write.parquet(path)
    return spark.read.parquet(path)


def _load_s(df: "DataFrame", folder: Path) -> float:
    from shale_spark.load import load

    start = perf_counter()
    load(df, f"file://{folder}/db")
    return perf_counter() - start


def _write_s(df: "DataFrame", folder: Path) -> float:
    with _writer(folder) as endpoint:
        start = perf_counter()
        df.write.format("shale").mode("append").option("endpoint", endpoint).save()
        return perf_counter() - start


@contextmanager
def _writer(folder: Path) -> "Iterator[str]":
    folder.mkdir()
    arguments = ("--url", f"file://{folder}/db", "--port", "0")
    with running("shale_writer", *arguments, log=folder / "log", is_fresh=True) as daemon:
        yield f"http://127.0.0.1:{daemon.port('port')}"
