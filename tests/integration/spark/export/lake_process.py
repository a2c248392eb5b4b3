"""Exports to Delta or Iceberg with their packages: arguments are the format, the folder of jars and one to write to.

Says what came of each mode, as JSON.
"""

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import shale
from shale.errors import InvalidRequestError
from shale_spark.export import export
from shale_spark.session import spark_session
from shale_spark.source.options import parse_where

COUNT = 300
PROPERTIES = {
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
    "iceberg": {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
    },
}


def main(format_: str, jars: Path, folder: Path) -> Iterator[tuple[str, object]]:
    """Print the mode and the report of each export, and what other readers find."""
    conf = {
        "spark.driver.memory": "700m",
        "spark.sql.shuffle.partitions": "2",
        "spark.jars": ",".join(map(str, sorted(jars.glob("*.jar")))),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        **PROPERTIES[format_],
    }
    if format_ == "iceberg":
        conf["spark.sql.catalog.lake.warehouse"] = str(folder / "tables")
    spark = spark_session(master="local[2]", app_name="lake", conf=conf)
    asyncio.run(_write(f"file://{folder}/db"))
    target = str(folder / "table") if format_ == "delta" else "lake.db.orders"
    for number, mode in enumerate(("append", "error", "overwrite", "append")):
        try:
            result = export(
                spark,
                parse_where({"url": f"file://{folder}/db"}),
                target,
                format=format_,
                mode=mode,
                schema="key string, n int, kind string",
                value_format="json",
                partition_by=["kind"],
            )
            yield f"{number} {mode}", result.rows
        except InvalidRequestError as error:
            yield f"{number} {mode}", str(error).removeprefix(target)
    found = spark.read.format("delta").load(target) if format_ == "delta" else spark.table(target)
    yield "found", [found.count(), found.agg({"n": "sum"}).collect()[0][0]]
    spark.stop()


async def _write(url: str) -> None:
    async with shale.Db.open(url) as db:
        for number in range(COUNT):
            await db.put(b"k%03d" % number, b'{"n":%d,"kind":"%s"}' % (number, b"ab"[number % 2 :][:1]))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(dict(main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))))
