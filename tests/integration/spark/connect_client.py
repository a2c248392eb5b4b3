"""A program that uses Spark Connect: arguments are the server and a folder; prints its results as JSON."""

import asyncio
import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import shale
from shale_spark.changes.dataframe import changes
from shale_spark.export import export
from shale_spark.load import load
from shale_spark.scrub import scrub
from shale_spark.session import spark_session
from shale_spark.source.options import parse_where

COUNT = 2000


def main(server: str, folder: Path) -> Iterator[tuple[str, object]]:
    """Print the operations and their results."""
    spark = spark_session(master=server)
    url, where = f"file://{folder}/db", parse_where({"url": f"file://{folder}/db"})
    rows = spark.range(COUNT).selectExpr("concat('k', lpad(id, 5, '0')) as key", "concat('{\"n\":', id, '}') as value")
    yield "loaded", load(rows, url, key="key").rows
    yield "appended", load(rows, url, key="key", mode="append").seq
    reader = spark.read.format("shale").option("url", url).option("value_format", "json")
    frame = reader.schema("key string, n bigint").load()
    yield "read", [frame.count(), frame.agg({"n": "sum"}).collect()[0][0]]
    pushing = reader.option("pushdown", "true").schema("key string").load()
    yield "pushed down", pushing.filter("key = 'k00007'").count()
    target = f"{folder}/out"
    yield "exported", export(spark, where, target, schema="key string, n bigint", value_format="json").rows
    yield "refused", _error(lambda: export(spark, where, target))
    report = scrub(spark, url)
    yield "scrubbed", [report.is_sound, report.rows]
    ordered = rows.repartitionByRange(2, "key").sortWithinPartitions("key")
    ordered.write.format("shale").mode("append").option("mode", "build").save(f"file://{folder}/built")
    yield "built", spark.read.format("shale").load(f"file://{folder}/built").count()
    log = f"file://{folder}/log"
    asyncio.run(_write(log))
    stream = changes(spark, log, start="earliest").writeStream.format("parquet").trigger(availableNow=True)
    query = stream.option("path", f"{folder}/sink").option("checkpointLocation", f"{folder}/query").start()
    query.awaitTermination(60)
    yield "followed", spark.read.parquet(f"{folder}/sink").count()
    spark.stop()


async def _write(url: str) -> None:
    async with shale.Db.open(url) as db:
        for number in range(10):
            await db.put(b"k%d" % number, b"")


def _error(work: object) -> str:
    try:
        work()  # type: ignore[operator]
    except shale.errors.InvalidRequestError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    # Those of libraries are theirs; what a session is told in vain is ours.
    warnings.filterwarnings("error", message="Failed to set")
    sys.stdout.write(json.dumps(dict(main(sys.argv[1], Path(sys.argv[2])))))
