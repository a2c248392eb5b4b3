"""Scans of a database as a DataFrame, in bytes of keys and values per second and core, Java's part included."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

import shale
from shale_spark.source.batches import batches, columns_of, wanted_keys
from shale_spark.source.options import ReadOptions
from shale_spark.source.planning import plan_read
from shale_spark.tasks import run_async
from tests.bench.compaction import prepared
from tests.bench.compaction_load import ROOT, Load
from tests.bench.line import BenchLine, cpu_seconds, seconds

LARGE = Load(1_000_000, 512)
DOCUMENTS = 200_000
PER_TASK = 64 << 20
ROUNDS = 5
_MB = 1e6


def lines(spark: SparkSession) -> Iterator[BenchLine]:
    """The lines."""
    cores = spark.sparkContext.defaultParallelism
    with prepared(LARGE) as directory:
        options = {"store": f"file://{directory}", "path": ROOT, "partition_bytes": str(PER_TASK)}
        alone = _rate(LARGE.raw_bytes, cpu_seconds(_tasks_alone(options), ROUNDS))
        whole = seconds(_scan(spark, options, "key binary, value binary"), ROUNDS)
        keys = seconds(_scan(spark, options, "key binary"), ROUNDS)
        _add_documents(directory)
        documents = {**options, "path": "documents", "value_format": "json"}
        parsed = seconds(_scan(spark, documents, "n bigint, name string, price double"), ROUNDS)
        size = sum(len(_document(number)) + 16 for number in range(DOCUMENTS))
    yield BenchLine(
        name=f"scan of {LARGE}, per core",
        ours=_rate(LARGE.raw_bytes, whole * cores),
        reference=alone,
        unit="MB/s",
        target=">= 100 MB/s; the reference are the tasks without Spark",
    )
    yield BenchLine(
        name="the same, keys only, per core",
        ours=_rate(LARGE.raw_bytes, keys * cores),
        unit="MB/s",
        target="more than with values",
    )
    yield BenchLine(
        name=f"scan of {DOCUMENTS} JSON values into columns, per core",
        ours=_rate(size, parsed * cores),
        unit="MB/s",
        target="none",
    )


def _rate(size_bytes: int, took_s: float) -> float:
    return size_bytes / took_s / _MB


def _scan(spark: SparkSession, options: dict[str, str], schema: str) -> Callable[[], None]:
    """A query that asks for every column of every row, and keeps none."""

    def scan() -> None:
        frame: DataFrame = spark.read.format("shale").options(**options).schema(schema).load()
        frame.write.format("noop").mode("overwrite").save()

    return scan


def _tasks_alone(given: dict[str, str]) -> Callable[[], None]:
    """What the tasks do, one after the other in this process."""
    options = ReadOptions.parse(given)
    columns = columns_of(StructType().add("key", "binary").add("value", "binary"), options)

    def scan() -> None:
        planned = run_async(lambda env: plan_read(options, wanted_keys(options), env))
        for plan in planned.plans:
            for _ in batches(plan, columns):
                pass

    return scan


def _add_documents(directory: Path) -> None:
    async def write() -> None:
        async with shale.Db.open("documents", store=f"file://{directory}", wal_enabled=False) as db:
            for start in range(0, DOCUMENTS, 1000):
                batch = shale.WriteBatch()
                for number in range(start, start + 1000):
                    batch.put(b"key-%012d" % number, _document(number))
                await db.write(batch)
            await db.flush("memtable")

    asyncio.run(write())


def _document(number: int) -> bytes:
    return orjson.dumps({"n": number, "name": f"customer {number % 977}", "price": number / 7, "note": "x" * 60})
