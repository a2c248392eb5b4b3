"""A compaction of two ranges on a cluster with a slow first attempt at one of them; prints the outcome as JSON.

Arguments: the master, and a folder for the database.
"""

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession

from shale.compaction.filters import FilterContext, RowBatch
from shale_spark.session import spark_session
from tests.integration.spark.compaction.jobs import Place

CONF = {
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.task.maxFailures": "1",  # what runs twice was not tried again, but copied
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "100ms",
}
PAUSE_S = 3.0
"""With every batch of the slow attempt: it would take more than a minute, and writes on meanwhile."""


def attempts(job_id: str) -> list[Path]:
    """Return a file for each attempt at the first range."""
    return sorted(Path(tempfile.gettempdir()).glob(f"shale-{job_id}-attempt-*"))


class SlowAtFirst:
    """A filter that delays the first attempt at the range with the smallest keys."""

    def __init__(self, context: FilterContext) -> None:
        self._is_slow = False
        if not context.key_range.start.key:
            number = len(attempts(str(context.job_id)))
            (Path(tempfile.gettempdir()) / f"shale-{context.job_id}-attempt-{number}").touch(exist_ok=False)
            self._is_slow = number == 0

    def filter(self, batch: RowBatch) -> None:
        """Keep all rows."""
        if self._is_slow and len(batch.rows):
            time.sleep(PAUSE_S)

    def finish(self) -> None:
        """Return no rows: none are buffered."""


async def main(spark: SparkSession, folder: Path) -> dict[str, object]:
    """Run the job and check the resulting objects."""
    place = Place(folder, spark)
    job = await place.job()
    progress = place.progress()
    try:
        outputs = await place.executor(f"{__spec__.name}:SlowAtFirst").run(job, progress)
        begun = len(attempts(str(job.id)))
    finally:
        for left in attempts(str(job.id)):
            left.unlink()
    orphans = place.sst_count() - len(job.l0) - len(outputs)
    return {
        "attempts": begun,
        "orphans": orphans,
        "same": await place.rows(outputs) == await place.expected(job),
        "once": len({sst.id for sst in outputs}) == len(outputs) and outputs == progress.outputs(),
    }


if __name__ == "__main__":
    session = spark_session(master=sys.argv[1], app_name="speculation", conf=CONF)
    try:
        sys.stdout.write(json.dumps(asyncio.run(main(session, Path(sys.argv[2])))))
    finally:
        session.stop()
