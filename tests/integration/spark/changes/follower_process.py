"""A separate driver that follows a database until it is killed, or with ``once`` up to its newest change.

``python -m tests.integration.spark.changes.follower_process URL FOLDER [once]``
"""

import sys
from pathlib import Path

from shale_spark.changes.dataframe import changes
from shale_spark.session import spark_session
from tests.integration.spark.changes.harness import Sink
from tests.integration.spark.conftest import CONF


def main(url: str, folder: Path, *, once: bool) -> None:
    places = {"spark.local.dir": str(folder / "local"), "spark.sql.warehouse.dir": str(folder / "warehouse")}
    spark = spark_session(master="local[2]", app_name="soak", conf=CONF | places)
    stream = changes(spark, url, start="earliest", retain="soak", retain_for="10m", max_files_per_trigger=200)
    writer = stream.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    writer = writer.foreachBatch(Sink(folder / "batches").take)
    query = (writer.trigger(availableNow=True) if once else writer).start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), once=sys.argv[3:] == ["once"])
