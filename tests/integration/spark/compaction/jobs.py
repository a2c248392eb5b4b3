"""Jobs over real SSTs in a directory, and executors for them."""

import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from shale.engine.location import DatabaseLocation
from shale.env import Env
from shale.service.config.spark_section import SparkSettings
from shale.sst.options import SstOptions
from shale.store.connect import connect
from shale.store.port import ObjectStore
from shale.telemetry.metrics import Metrics
from shale.types import Entry, Manifest, RunId, Seq, Sst, TieredSpec, Tree
from shale_compactor.execution.executor import Executor
from shale_compactor.execution.job import Job, plan_job
from shale_compactor.execution.options import ExecutorOptions
from shale_compactor.execution.progress import JobProgress
from shale_compactor.execution.transforms import TransformNames
from shale_spark.compaction.executor import SparkExecutor, open_sessions
from tests.unit.compactor.ssts import read_ssts, write_view
from tests.unit.compactor.values import entry

ROOT = "db"
KEYS = 12_000
OPTIONS = ExecutorOptions(
    sst=SstOptions(min_filter_keys=10), max_sst_size_bytes=64 * 1024, max_subcompactions=1, memory_bytes=1 << 20
)
"""Many small SSTs."""


@dataclass
class JobDatabase:
    """A database in a directory with one job: three L0s, the newest over a half of the keys of the others."""

    folder: Path
    spark: SparkSession
    ranges: int = 2
    env: Env = field(default_factory=Env.system)
    store: ObjectStore = field(init=False)
    jobs: list[Job] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = connect(f"file://{self.folder}", self.env)

    async def job(self, *more: Entry) -> Job:
        """Create three L0s of real rows; ``more`` goes into the newest."""
        rng = random.Random(5)
        layers = []
        for number, step in enumerate((1, 1, 2)):
            rows = [Entry(b"key%07d" % i, rng.randbytes(90), number * KEYS + i + 1, 0) for i in range(0, KEYS, step)]
            layers.append(rows)
        layers[-1] += more
        views = [await write_view(self.store, ROOT, self.env.ids.ulid(), rows) for rows in layers]
        tree = Tree(l0=tuple(views[::-1]))
        spec = TieredSpec(l0_view_ids=tuple(view.id for view in tree.l0), destination=RunId(1))
        self.jobs.append(plan_job(entry(self.env.clock.now_ms(), spec), Manifest(tree=tree)))
        return self.jobs[-1]

    def executor(self, *filters: str, passthrough: bool = True) -> SparkExecutor:
        """Return an executor on the session of the tests."""
        where = DatabaseLocation(f"file://{self.folder}", ROOT)
        return SparkExecutor(
            where,
            self.store,
            self.env,
            OPTIONS,
            transforms=TransformNames(compaction_filters=filters, merge_passthrough=passthrough),
            sessions=open_sessions(where, SparkSettings(ranges=self.ranges), lambda: self.spark),
            metrics=Metrics(),
        )

    def progress(self, on_sst: Callable[[Sst], None] = lambda _sst: None) -> JobProgress:
        """Return the progress of a job that has not begun."""
        return JobProgress(retention_min_seq=Seq(2**40), on_sst=on_sst)

    def sst_count(self) -> int:
        """Return all objects, referenced or not."""
        return sum(1 for _ in (self.folder / ROOT / "compacted").glob("*.sst"))

    def forget_marks(self) -> None:
        """Remove the files of filters."""
        for job in self.jobs:
            for left in Path(tempfile.gettempdir()).glob(f"shale-{job.id}-*"):
                left.unlink()

    async def rows(self, ssts: tuple[Sst, ...]) -> list[Entry]:
        """Return the written rows."""
        return await read_ssts(self.store, ROOT, self.env, ssts)

    async def expected(self, job: Job) -> list[Entry]:
        """Return the outputs of a local executor."""
        local = Executor(self.store, ROOT, self.env, OPTIONS)
        return await self.rows(await local.run(job, self.progress()))
