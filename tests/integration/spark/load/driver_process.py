"""A driver that loads rows, as a process that can be killed.

python -m tests.integration.spark.load.driver_process URL ROWS
"""

import sys

from pyspark.sql import functions as f

from shale_spark.load import load
from shale_spark.session import spark_session

PARTITIONS = 4
CONF = {
    "spark.driver.memory": "512m",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500",  # or a task would write nothing before its last row
}


def main(url: str, rows: int) -> None:
    """Load, and print the report."""
    spark = spark_session(master="local[2,4]", app_name="load", conf=CONF)
    try:
        key = f.unhex(f.sha2(f.col("id").cast("string"), 256))
        df = spark.range(0, rows, 1, 4).select(
            key.alias("key"), f.col("id").cast("string").cast("binary").alias("value")
        )
        codec = "tests.integration.spark.load.flaky_codec:FlakyCodec"
        result = load(df, url, value="value", value_format=codec, partitions=PARTITIONS, sst_bytes="16KiB")
        sys.stdout.write(f"{result.rows} {result.ssts}\n")
    finally:
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
