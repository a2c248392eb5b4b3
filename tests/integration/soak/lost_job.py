"""A compaction whose Spark session dies in the middle.

python -m tests.integration.soak.lost_job FOLDER
"""

import os
import signal
import sys
from pathlib import Path

import anyio

from shale.service.config.spark_section import SparkSettings
from shale.types import Sst
from shale_compactor.execution.executor import Executor
from shale_compactor.execution.routing import RoutingExecutor
from shale_spark.session import spark_session
from tests.integration.spark.compaction.jobs import OPTIONS, ROOT, Place

SETTINGS = SparkSettings(master="local[2]", conf=(("spark.driver.memory", "512m"),))


async def main(folder: Path) -> None:
    """Kill Java once the first SST exists; the rows are unchanged, and nothing is merged twice."""
    spark = spark_session(SETTINGS, app_name="lost")
    assert spark._jvm is not None
    java = [spark._jvm.java.lang.ProcessHandle.current().pid()]
    place = Place(folder, spark)
    job = await place.job()
    finished: list[Sst] = []
    lost: list[str] = []

    def kill(sst: Sst) -> None:
        finished.append(sst)
        if java:
            os.kill(java.pop(), signal.SIGKILL)

    chosen = RoutingExecutor(
        Executor(place.store, ROOT, place.env, OPTIONS),
        place.executor(),
        place.env,
        min_bytes=1,
        on_lost=lambda error: lost.append(str(error)),
    )
    progress = place.progress(kill)
    outputs = await chosen.run(job, progress)
    assert len(lost) == 1, lost
    assert sorted(map(str, finished)) == sorted(map(str, outputs))
    assert await place.rows(outputs) == await place.expected(job)
    assert await place.rows(await chosen.run(job, place.progress())) == await place.expected(job)
    assert len(lost) == 1, lost
    print("done", lost[0])


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]))
