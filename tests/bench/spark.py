"""``make bench-spark``: what Spark costs and gives, in one warm session with two cores.

python -m tests.bench.spark [compaction|load|read]...

Each suite is a module ``tests.bench.spark_<name>`` with ``lines(spark)``.
"""

import argparse
from importlib import import_module
from typing import TYPE_CHECKING

from shale_spark.session import spark_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import SparkSession

SUITES = ("compaction", "load", "read")
CONF = {
    "spark.driver.memory": "512m",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
}


def main() -> None:
    """Print the lines of the suites that were asked for, or of all."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.spark")
    parser.add_argument("suites", nargs="*", metavar="suite", help=f"of {', '.join(SUITES)}; default: all")
    arguments = parser.parse_args()
    if unknown := set(arguments.suites) - set(SUITES):
        parser.error(f"no such suite: {', '.join(sorted(unknown))}")
    spark = spark_session(master="local[2]", app_name="bench", conf=CONF)
    try:
        for name in arguments.suites or SUITES:
            lines: Callable[[SparkSession], Iterable[object]] = import_module(f"tests.bench.spark_{name}").lines
            for line in lines(spark):
                print(line, flush=True)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
