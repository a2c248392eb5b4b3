"""The demo, step by step: load in three parts, compact on Spark, read, aggregate, export, and follow a writer."""

import time
from collections.abc import Callable
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from rich.console import Console

from shale.compaction.requests import Sources
from shale.core.lazy_dataclass import dataclass
from shale.engine.location import DatabaseLocation, resolve
from shale.env import Env
from shale.protocol.manifest_store import ManifestStore
from shale.store.connect import open_store
from shale.telemetry.metrics import Metrics
from shale_cli.demo.daemons import Daemon
from shale_cli.demo.flights import FLIGHTS_COUNT
from shale_cli.demo.observer import DatabaseShape, Observer
from shale_cli.demo.report import DemoReport
from shale_cli.demo.stack import DATABASE, Stack
from shale_cli.demo.verification import slatedb_scan
from shale_spark.changes.dataframe import changes
from shale_spark.cli.java_log import JavaLog
from shale_spark.compaction.worker import compact
from shale_spark.demo.flights import COLUMNS, flights
from shale_spark.demo.live_writes import SeenChanges, write_batches
from shale_spark.export import export
from shale_spark.load import load
from shale_spark.session import spark_session

PARTS = ((1, 4), (5, 8), (9, 12))
"""Months of each load."""

CARRIER, FIRST, LAST = "DL", b"DL/", b"DL0"
"""One carrier, and the keys that begin with its name and a slash."""

LIVE_BATCHES, LIVE_ROWS = 20, 250
LIVE_TIMEOUT_S = 60
_CONF = {"spark.sql.shuffle.partitions": "4", "spark.ui.showConsoleProgress": "false"}
T = TypeVar("T")


@dataclass(slots=True)
class SparkDemo:
    """One run: its session, daemons and report."""

    spark: SparkSession
    stack: Stack
    console: Console
    report: DemoReport = field(default_factory=DemoReport)
    started_s: float = field(default_factory=time.monotonic)

    @property
    def where(self) -> DatabaseLocation:
        """The database."""
        return resolve(self.stack.url)

    def say(self, text: str) -> None:
        """Print one line of the demo."""
        self.console.print(f"[dim]{time.monotonic() - self.started_s:6.1f} s[/]  {text}")

    def timed(self, what: str, work: Callable[[], T]) -> T:
        """Do something, and report how long it took."""
        began_s = time.monotonic()
        result = work()
        self.report.fact(f"{what}, seconds", f"{time.monotonic() - began_s:.1f}")
        return result

    def shape(self) -> DatabaseShape:
        """Read the shape of the database."""

        async def look() -> DatabaseShape:
            store = open_store(f"file://{self.stack.store_directory}")
            try:
                return await Observer(store, DATABASE, Env.system()).shape()
            finally:
                await store.aclose()

        return anyio.run(look)


def run_demo(directory: Path, console: Console, *, master: str) -> bool:
    """Run all steps in an empty directory; return whether every count matches."""
    began_s = time.monotonic()
    stack = Stack(directory)
    log = JavaLog(stack.logs / "spark.log")
    with log.redirected():
        spark = spark_session(master=master, app_name="shale demo", conf=_CONF)
    demo = SparkDemo(spark, stack, console, started_s=began_s)
    demo.say(f"Spark {spark.version} is up on {master}; the database will lie in [bold]{stack.url}[/]")
    coordinator, writer = stack.coordinator(), stack.writer("writer")
    try:
        source = flights(spark, directory).cache()
        _load(demo, source)
        _compact(demo, coordinator)
        _read_back(demo, source)
        _export(demo, source)
        _follow(demo, writer)
        _stop(demo, (writer, coordinator))
    finally:
        for daemon in (writer, coordinator):
            if daemon.is_running:
                daemon.kill()
        spark.stop()
    demo.report.fact("seconds in all", f"{time.monotonic() - began_s:.1f}")
    demo.report.fact("location of the data", stack.url)
    demo.report.fact("location of the logs", stack.logs)
    demo.report.show(console)
    return demo.report.holds


def _load(demo: SparkDemo, source: DataFrame) -> None:
    """Load the first months into a new database, and append two more loads."""
    rows = 0
    for number, (first, last) in enumerate(PARTS):
        part = source.where(f.col("month").between(first, last))
        mode = "create" if number == 0 else "append"
        result = demo.timed(
            f"load of months {first} to {last}",
            partial(load, part, demo.where, value_format="json", mode=mode, partitions=2),
        )
        rows += result.rows
        demo.say(f"months {first} to {last}: {result.rows:,} rows in {result.ssts} SSTs, one commit ({mode})")
    shape = demo.shape()
    demo.say(f"{shape.l0_count} L0 and {shape.run_count} sorted run, named by manifest {shape.manifest_id}")
    demo.report.check("rows loaded", expected=FLIGHTS_COUNT, seen=rows)


def _compact(demo: SparkDemo, coordinator: Daemon) -> None:
    """Compact everything into one run: scheduled by a compactor, executed on Spark, committed by the compactor."""
    anyio.run(coordinator.start)
    demo.say(f"{coordinator.name} is ready (pid {coordinator.pid}); it schedules, and executes nothing itself")
    request = anyio.run(_everything, demo.where)
    ended = demo.timed("compaction on Spark", partial(compact, demo.spark, demo.where, request))
    for info in ended:
        demo.say(f"compaction {info.id}: {info.phase.value}, {info.error or 'no error'}")
    demo.report.check("compactions that failed", expected=0, seen=sum(info.error is not None for info in ended))
    shape = demo.shape()
    demo.report.check("L0 tables and sorted runs afterwards", expected=(0, 1), seen=(shape.l0_count, shape.run_count))


async def _everything(where: DatabaseLocation) -> Sources:
    """Return all L0s and runs of the database."""
    env = Env.system()
    stores = where.connect(env, Metrics(), component="pipeline")
    try:
        tree = (await ManifestStore(stores.main, where.root, env).read_latest()).value.tree
    finally:
        await stores.aclose()
    return Sources(l0_view_ids=tuple(view.id for view in tree.l0), sorted_runs=tuple(run.id for run in tree.compacted))


def _read_back(demo: SparkDemo, source: DataFrame) -> None:
    rows = (
        demo.spark.read.format("shale")
        .option("url", demo.stack.url)
        .option("value_format", "json")
        .schema(f"key binary, {COLUMNS}")
        .load()
    )
    seen = demo.timed("count of a DataFrame", rows.count)
    demo.say(f'spark.read.format("shale") has {seen:,} rows')
    demo.report.check("rows of the DataFrame", expected=FLIGHTS_COUNT, seen=seen)
    one = rows.where((f.col("key") >= f.lit(FIRST)) & (f.col("key") < f.lit(LAST)))
    seen = demo.timed("key-range query", one.count)
    demo.report.check(
        "rows with keys of one carrier", expected=source.where(f.col("carrier") == CARRIER).count(), seen=seen
    )
    sums = demo.timed("aggregation", partial(_by_carrier, rows))
    demo.say(f"{len(sums)} carriers flew {sum(each[2] for each in sums):,} miles")
    demo.report.check("carriers whose flights and miles agree", expected=len(sums), seen=_equal(sums, source))


def _by_carrier(rows: DataFrame) -> list[tuple[str, int, int]]:
    """Return carrier, flights and miles."""
    grouped = rows.groupBy("carrier").agg(f.count("*"), f.sum("distance"))
    return [(carrier, flown, miles) for carrier, flown, miles in grouped.collect()]


def _equal(sums: list[tuple[str, int, int]], source: DataFrame) -> int:
    return len(set(sums) & set(_by_carrier(source)))


def _export(demo: SparkDemo, source: DataFrame) -> None:
    target = demo.stack.directory / "parquet"
    result = demo.timed(
        "export to Parquet",
        partial(
            export,
            demo.spark,
            demo.where,
            target.as_uri(),
            value_format="json",
            schema=f"key binary, {COLUMNS}",
            partition_by=("origin",),
        ),
    )
    demo.say(f"{result.rows:,} rows as Parquet, one folder for each airport")
    exported = demo.spark.read.parquet(str(target))
    demo.report.check("rows exported", expected=FLIGHTS_COUNT, seen=exported.count())
    demo.report.check(
        "airports of the folders",
        expected=sorted(row[0] for row in source.select("origin").distinct().collect()),
        seen=sorted(each.name.partition("=")[2] for each in target.glob("origin=*")),
    )


def _follow(demo: SparkDemo, writer: Daemon) -> None:
    """Follow a stream of changes while a writer daemon takes new rows."""
    anyio.run(writer.start)
    demo.say(f"{writer.name} is ready (pid {writer.pid}); a stream follows its WAL")
    seen = SeenChanges()
    query = (
        # Start at the latest change: loads bypass the WAL, so a stream from the earliest one would end with a gap.
        changes(demo.spark, demo.where, start="latest")
        .writeStream.foreachBatch(seen.take)
        .option("checkpointLocation", str(demo.stack.directory / "stream"))
        .trigger(processingTime="200 milliseconds")
        .start()
    )
    try:
        query.processAllAvailable()
        batches = [
            [(b"~live/%06d" % number, b"{}") for number in range(start, start + LIVE_ROWS)]
            for start in range(0, LIVE_BATCHES * LIVE_ROWS, LIVE_ROWS)
        ]
        acknowledged = demo.timed("live writes", partial(write_batches, writer.url, batches))
        seen.wait_for(acknowledged, LIVE_TIMEOUT_S)
    finally:
        query.stop()
    demo.say(f"{len(seen.keys):,} changes seen of {acknowledged:,} rows acknowledged as durable")
    demo.report.check(
        "changes seen, each once", expected=(acknowledged,) * 2, seen=(len(seen.keys), len(set(seen.keys)))
    )
    demo.report.check("changes in the order of sequence numbers", expected=True, seen=seen.ascends)


def _stop(demo: SparkDemo, daemons: tuple[Daemon, ...]) -> None:
    codes = [anyio.run(daemon.stop) for daemon in daemons]
    demo.report.check("exit codes of the daemons", expected=[0] * len(daemons), seen=codes)
    rows = demo.spark.read.format("shale").option("url", demo.stack.url).load()
    in_all = FLIGHTS_COUNT + LIVE_BATCHES * LIVE_ROWS
    demo.report.check("rows in the end", expected=in_all, seen=rows.count())
    theirs = anyio.run(slatedb_scan, str(demo.stack.store_directory), DATABASE, {})
    if theirs is None:
        demo.report.fact("rows read by SlateDB", "not installed here")
    else:
        demo.say(f"SlateDB opened the same directory and read {theirs.rows:,} rows")
        demo.report.check("rows read by SlateDB", expected=in_all, seen=theirs.rows)
