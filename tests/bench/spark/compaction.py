"""A compaction on Spark beside the same one in this process: time, bytes through Java, and from which size it pays.

Spark costs the same for every job: tasks are planned, started and heard of.  What it gives are more cores.  With

    o   seconds that a job costs on Spark and not here,
    L   bytes per second that the cores of this machine merge,
    k   cores of the cluster for each core here,
    e   what one core there does of what one does here,

Spark is faster from ``o * L / (1 - 1 / (k * e))`` bytes on.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

from pyspark.sql import SparkSession

from shale.engine.location import DatabaseLocation
from shale.env import Env
from shale.protocol.manifest_store import ManifestStore
from shale.service.config.spark_section import SparkSettings
from shale.service.runtime_tuning import reuse_large_buffers, share_one_arena
from shale.store.connect import connect
from shale.telemetry.metrics import Metrics
from shale.types import Compaction, CompactionStatus, RunId, TieredSpec
from shale_compactor.execution.executor import Executor
from shale_compactor.execution.job import JobExecutor, plan_job
from shale_compactor.execution.options import ExecutorOptions
from shale_compactor.execution.progress import JobProgress
from shale_compactor.execution.transforms import TransformNames
from shale_spark.compaction.executor import SparkExecutor, open_sessions
from tests.bench.compaction.load import ROOT, Load, ssts
from tests.bench.compaction.suite import prepared
from tests.bench.line import BenchLine

LARGE = Load(1_000_000, 1024)
SMALL = Load(10_000, 100)
ROUNDS = 5
CLUSTERS = (2, 4, 8, 16)
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Payoff:
    """The numbers of the formula above."""

    overhead_s: float
    local_rate: float
    efficiency: float

    def min_bytes(self, cores_ratio: float) -> float:
        """Return the size from which Spark is faster; infinite if its cores are not faster than the local ones."""
        gain = 1 - 1 / (cores_ratio * self.efficiency)
        return self.overhead_s * self.local_rate / gain if gain > 0 else float("inf")


def lines(spark: SparkSession) -> Iterator[object]:
    """The lines, and the table."""
    share_one_arena()
    reuse_large_buffers()
    with prepared(SMALL) as small:
        overhead_s = median(_compact(small, spark) for _ in range(ROUNDS)) - _compact(small, None)
    with prepared(LARGE) as directory:
        _compact(directory, None)
        here, there, through = [], [], []
        for _ in range(ROUNDS):
            here.append(_compact(directory, None))
            before = java_bytes(spark)
            there.append(_compact(directory, spark))
            through.append(java_bytes(spark) - before)
    local_s, spark_s = median(here), median(there)
    yield BenchLine(
        name=f"compaction on Spark, warm local[2], {LARGE}",
        ours=spark_s,
        reference=local_s,
        unit="s",
        target=f"<= {1.3 * local_s + 1.5:.2f} s: 1.3x in process + 1.5 s",
    )
    yield BenchLine(
        name="bytes through Java, of all bytes that were merged",
        ours=100 * median(through) / LARGE.raw_bytes,
        unit="%",
        target="<= 0.1 %",
    )
    yield BenchLine(name="a small compaction costs more by", ours=overhead_s, unit="s", target="none")
    efficiency = min(1.0, local_s / max(spark_s - overhead_s, 1e-3))
    payoff = Payoff(overhead_s, LARGE.raw_bytes / local_s, efficiency)
    for ratio in CLUSTERS:
        yield f"{ratio:>3} times the cores: Spark is faster from {payoff.min_bytes(ratio) / _MIB:,.0f} MiB on"


def java_bytes(spark: SparkSession) -> int:
    """All bytes that the Java process has read and written so far, by files and sockets, as Linux counts them."""
    assert spark._jvm is not None
    process = spark._jvm.java.lang.ProcessHandle.current().pid()
    fields = dict(line.split(": ") for line in Path(f"/proc/{process}/io").read_text().splitlines())
    return int(fields["rchar"]) + int(fields["wchar"])


def _compact(directory: Path, spark: SparkSession | None) -> float:
    """Return seconds of one compaction of all L0s; its outputs are deleted, so that the next one has the same disk."""
    before = ssts(directory)
    start = perf_counter()
    asyncio.run(_run(directory, spark))
    elapsed = perf_counter() - start
    for path in ssts(directory) - before:
        path.unlink()
    return elapsed


async def _run(directory: Path, spark: SparkSession | None) -> None:
    env = Env.system()
    store = connect(f"file://{directory}", env)
    manifest = (await ManifestStore(store, ROOT, env).read_latest()).value
    entry = Compaction(
        id=env.ids.ulid(),
        spec=TieredSpec(l0_view_ids=tuple(view.id for view in manifest.tree.l0), destination=RunId(0)),
        status=CompactionStatus.RUNNING,
    )
    executor: JobExecutor = Executor(store, ROOT, env, ExecutorOptions())
    if spark is not None:
        executor = SparkExecutor(
            DatabaseLocation(f"file://{directory}", ROOT),
            store,
            env,
            ExecutorOptions(),
            transforms=TransformNames(),
            sessions=open_sessions(DatabaseLocation(f"file://{directory}", ROOT), SparkSettings(), lambda: spark),
            metrics=Metrics(),
        )
    progress = JobProgress(retention_min_seq=manifest.recent_snapshot_min_seq)
    await executor.run(plan_job(entry, manifest), progress)
    await store.aclose()
