"""Spark as the worker of a Rust coordinator: it schedules and commits, Spark executes, and it reads every row."""

import asyncio
from pathlib import Path

import anyio
from pyspark.sql import SparkSession

from shale.engine.where import Where
from shale.service.spark_section import SparkSettings
from shale.telemetry.metrics import Metrics
from shale.types import CompactionStatus
from shale_compactor.execution.transforms import TransformNames
from shale_compactor.worker.worker import Worker
from shale_spark.compaction.executor import make_executor
from tests.interop.compaction_house import ROOT, RUST_COMPACTS, WORKS, House, executor_options
from tests.interop.slatedb_writes import Shape, flush, opened, put_all, until

PATIENCE_S = 60


def spark_worker(house: House, folder: Path, spark: SparkSession) -> Worker:
    executor = make_executor(
        Where(f"file://{folder}", ROOT),
        house.store,
        house.env,
        executor_options(),
        transforms=TransformNames(),
        settings=SparkSettings(ranges=2),
        metrics=Metrics(),
        session=lambda: spark,
    )
    return Worker(house.manifests, house.compactions, executor, house.env, WORKS)


async def has_compacted(house: House) -> bool:
    stored = await house.compactions.try_read_latest()
    done = stored is not None and any(entry.status is CompactionStatus.COMPLETED for entry in stored.value.entries)
    return done and await house.settled()


def test_its_coordinator_commits_what_spark_executes(tmp_path: Path, spark: SparkSession) -> None:
    """It has no worker of its own; afterwards both libraries read every row."""

    async def main() -> None:
        house = House(tmp_path)
        options = {"compactor_options": {**RUST_COMPACTS, "worker": None}}
        async with opened(house.rust, ROOT, Shape(options)) as db, anyio.create_task_group() as tasks:
            tasks.start_soon(spark_worker(house, tmp_path, spark).run)
            for _ in range(4):
                await put_all(db, house.next_rows())
                await flush(db)
            await until(lambda: has_compacted(house), seconds=PATIENCE_S)
            tasks.cancel_scope.cancel()
        manifest = await house.manifest()
        assert manifest.tree.compacted, "somebody has compacted, and there is nobody else"
        await house.assert_all_read_everything()
        await house.store.aclose()

    asyncio.run(main())
