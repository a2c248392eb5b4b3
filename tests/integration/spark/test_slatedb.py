"""Spark as the worker of a Rust coordinator: it schedules and commits, Spark executes, and it reads every row."""

import asyncio
from pathlib import Path

import anyio
from pyspark.sql import SparkSession

from shale.engine.location import DatabaseLocation
from shale.service.config.spark_section import SparkSettings
from shale.telemetry.metrics import Metrics
from shale.types import CompactionStatus
from shale_compactor.execution.transforms import TransformNames
from shale_compactor.worker.worker import Worker
from shale_spark.compaction.executor import SparkExecutor, open_sessions
from tests.interop.compaction.harness import ROOT, RUST_COMPACTS, WORKS, Harness, executor_options
from tests.interop.slatedb_databases import Shape, flush, opened, put_all, until

PATIENCE_S = 60


def spark_worker(harness: Harness, folder: Path, spark: SparkSession) -> Worker:
    executor = SparkExecutor(
        DatabaseLocation(f"file://{folder}", ROOT),
        harness.store,
        harness.env,
        executor_options(),
        transforms=TransformNames(),
        sessions=open_sessions(DatabaseLocation(f"file://{folder}", ROOT), SparkSettings(ranges=2), lambda: spark),
        metrics=Metrics(),
    )
    return Worker(harness.manifests, harness.compactions, executor, harness.env, WORKS)


async def has_compacted(harness: Harness) -> bool:
    stored = await harness.compactions.try_read_latest()
    done = stored is not None and any(entry.status is CompactionStatus.COMPLETED for entry in stored.value.entries)
    return done and await harness.settled()


def test_its_coordinator_commits_what_spark_executes(tmp_path: Path, spark: SparkSession) -> None:
    """It has no worker; afterwards both libraries read every row."""

    async def main() -> None:
        harness = Harness(tmp_path)
        options = {"compactor_options": {**RUST_COMPACTS, "worker": None}}
        async with opened(harness.rust, ROOT, Shape(options)) as db, anyio.create_task_group() as tasks:
            tasks.start_soon(spark_worker(harness, tmp_path, spark).run)
            for _ in range(4):
                await put_all(db, harness.next_rows())
                await flush(db)
            await until(lambda: has_compacted(harness), seconds=PATIENCE_S)
            tasks.cancel_scope.cancel()
        manifest = await harness.manifest()
        assert manifest.tree.compacted, "no sorted run, although the compaction ran"
        await harness.assert_all_read_everything()
        await harness.store.aclose()

    asyncio.run(main())
