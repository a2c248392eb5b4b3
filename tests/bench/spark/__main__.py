"""``make bench-spark``: costs and benefits of Spark, in one warm session with two cores.

python -m tests.bench.spark [compaction|load|read]...

Each suite is a module of this package with ``lines(spark)``.
"""

from shale_spark.session import spark_session
from tests.bench.suites import Suites

ENTRY_POINTS = {name: f"tests.bench.spark.{name}:lines" for name in ("compaction", "load", "read")}
CONF = {
    "spark.driver.memory": "512m",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
}


def main() -> None:
    """Print the lines of the chosen suites."""
    suites = Suites("python -m tests.bench.spark", ENTRY_POINTS)
    names = suites.parse().suites
    spark = spark_session(master="local[2]", app_name="bench", conf=CONF)
    try:
        for name in names:
            for line in suites.load(name)(spark):
                print(line, flush=True)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
