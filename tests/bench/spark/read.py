"""Scans of a database as a DataFrame, in bytes of keys and values per second of a core.

Counted is the CPU time of Java and of its Python workers, so it does not matter who else uses the machine.
"""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from statistics import median

import orjson
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

import shale
from shale_spark.source.columns import columns_of
from shale_spark.source.filters import requested_keys
from shale_spark.source.options import SparkReadOptions
from shale_spark.source.plan_reader import read_batches
from shale_spark.source.planner import plan_read
from shale_spark.tasks import run_async
from tests.bench.compaction.load import ROOT, Load
from tests.bench.compaction.suite import prepared
from tests.bench.line import BenchLine, cpu_seconds

LARGE = Load(1_000_000, 512)
DOCUMENTS = 200_000
PER_TASK = 64 << 20
ROUNDS = 5
_MB = 1e6


def lines(spark: SparkSession) -> Iterator[BenchLine]:
    """The lines."""
    with prepared(LARGE) as directory:
        options = {"store": f"file://{directory}", "path": ROOT, "partition_bytes": str(PER_TASK)}
        alone = _rate(LARGE.raw_bytes, cpu_seconds(_tasks_alone(options), ROUNDS))
        whole = _spark_seconds(_scan(spark, options, "key binary, value binary"))
        keys = _spark_seconds(_scan(spark, options, "key binary"))
        _add_documents(directory)
        documents = {**options, "path": "documents", "value_format": "json"}
        parsed = _spark_seconds(_scan(spark, documents, "n bigint, name string, price double"))
        size = sum(len(_document(number)) + 16 for number in range(DOCUMENTS))
    yield BenchLine(
        name=f"scan of {LARGE}, per core",
        ours=_rate(LARGE.raw_bytes, whole),
        reference=alone,
        unit="MB/s",
        target=">= 100 MB/s; the reference are the tasks without Spark",
    )
    yield BenchLine(
        name="the same, keys only, per core",
        ours=_rate(LARGE.raw_bytes, keys),
        unit="MB/s",
        target="more than with values",
    )
    yield BenchLine(
        name=f"scan of {DOCUMENTS} JSON values into columns, per core",
        ours=_rate(size, parsed),
        unit="MB/s",
        target="none",
    )


def _rate(size_bytes: int, took_s: float) -> float:
    return size_bytes / took_s / _MB


def _spark_seconds(work: Callable[[], None]) -> float:
    """Median CPU time of one call in all processes that this one has started, after two that do not count."""
    times = []
    for number in range(ROUNDS + 2):
        before = _cpu_of_descendants()
        work()
        if number >= 2:
            times.append(_cpu_of_descendants() - before)
    return median(times)


def _cpu_of_descendants() -> float:
    """Seconds of processor time that all descendants have taken, those that have ended included."""
    stats = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        # A process may end between the listing and the reading; its parent counts it from then on.
        with suppress(OSError):
            name, _, fields = file.read_text().rpartition(")")
            stats[int(name.split()[0])] = fields.split()
    children: dict[int, list[int]] = {}
    for process, fields in stats.items():
        children.setdefault(int(fields[1]), []).append(process)
    ticks, family = 0, list(children.get(os.getpid(), ()))
    for process in family:
        ticks += sum(int(field) for field in stats[process][11:15])
        family += children.get(process, ())
    return ticks / os.sysconf("SC_CLK_TCK")


def _scan(spark: SparkSession, options: dict[str, str], schema: str) -> Callable[[], None]:
    """A query that asks for every column of every row, and keeps none."""

    def scan() -> None:
        frame: DataFrame = spark.read.format("shale").options(**options).schema(schema).load()
        frame.write.format("noop").mode("overwrite").save()

    return scan


def _tasks_alone(given: dict[str, str]) -> Callable[[], None]:
    """What the tasks do, one after the other in this process."""
    options = SparkReadOptions.parse(given)
    columns = columns_of(StructType().add("key", "binary").add("value", "binary"), options)

    def scan() -> None:
        planned = run_async(lambda env: plan_read(options, requested_keys(options), env))
        for plan in planned.plans:
            for _ in read_batches(plan, columns):
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
