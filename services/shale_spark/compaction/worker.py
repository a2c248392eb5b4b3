"""A compaction worker on a Spark session of the program: for one request, or for all scheduled jobs.

A coordinator runs elsewhere: `shale compactor`, or SlateDB.  A worker executes only jobs that it has scheduled.  It
retries as often as any worker, but the caller of one request waits for the result, so there it is three times.
"""

from collections.abc import Awaitable, Callable
from dataclasses import field, replace
from typing import TYPE_CHECKING, NoReturn

import anyio
from anyio.from_thread import BlockingPortal

from shale.admin.compactions import CompactionAdmin
from shale.compaction.requests import CompactionRequest
from shale.compaction.status import CompactionInfo
from shale.concurrency.first_error import first_error
from shale.core.lazy_dataclass import dataclass
from shale.engine.location import DatabaseLocation
from shale.env import Env
from shale.errors import ShaleError
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_store import ManifestStore
from shale.service.config.spark_section import SparkSettings
from shale.telemetry.error_types import is_retryable
from shale.telemetry.metrics import Metrics
from shale.types import Sst, Ulid
from shale_compactor.execution.job import Job, JobExecutor
from shale_compactor.execution.options import ExecutorOptions
from shale_compactor.execution.progress import JobProgress
from shale_compactor.execution.transforms import TransformNames
from shale_compactor.worker.options import WorkerOptions
from shale_compactor.worker.worker import Worker
from shale_spark.compaction.executor import SparkExecutor, open_sessions, require_executable
from shale_spark.tasks import is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WORKER_OPTIONS = WorkerOptions(name="spark", compactions_poll_interval_s=1.0, persist_every_sst=True)
OnProgress = Callable[[CompactionInfo], None]
OnStarted = Callable[[Callable[[], object]], object]
"""Gets a function that ends the work from any thread."""


class CompactionStopped(ShaleError):
    """The caller stopped the work; claims were released."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkWorkerOptions:
    """The options of a worker on Spark.

    Args:
        settings: number of ranges, and the address at which executors reach this process.
        options: how output is written, and the memory of a task.
        worker: how jobs are claimed and kept alive.
        transforms: the merge operator and the filters that every worker of the database uses.
    """

    settings: SparkSettings = field(default_factory=SparkSettings)
    options: ExecutorOptions = field(default_factory=ExecutorOptions)
    worker: WorkerOptions = _WORKER_OPTIONS
    transforms: TransformNames = field(default_factory=TransformNames)


DEFAULTS = SparkWorkerOptions()


def compact(
    spark: "SparkSession",
    where: DatabaseLocation,
    request: CompactionRequest,
    *,
    worker_options: SparkWorkerOptions = DEFAULTS,
    on_progress: OnProgress | None = None,
    on_started: OnStarted | None = None,
) -> tuple[CompactionInfo, ...]:
    """Submit compactions, execute them on Spark once they are scheduled, and return when they have ended.

    Args:
        spark: stays open.
        where: the database; its store must be a URL.
        request: as for ``shale compaction submit``.
        worker_options: see ``SparkWorkerOptions``.
        on_progress: called periodically with each compaction.
        on_started: called once with a function that any thread may call to stop the work and release the claim.

    Returns:
        The final state of each compaction; ``error`` is set if it failed.

    Raises:
        InvalidCompaction: the request breaks a rule.
        CompactionStopped: another thread stopped the work; the compaction stays scheduled.
        ShaleError: the store or the session cannot be used; or a compaction failed three times, or in a way that no
            other attempt could avoid.  It stays scheduled, and other workers may execute it.
    """
    # Check before submitting: a job that no worker here can execute would stay scheduled.
    require_executable(where, _of_session(spark, worker_options.settings))

    async def main() -> tuple[CompactionInfo, ...]:
        env = Env.system()
        stores = where.connect(env, Metrics(), component="worker")
        try:
            admin = CompactionAdmin(stores.main, where.root, env)
            asked = [info.id for info in await admin.submit(request)]
            ended: list[CompactionInfo] = []

            async def wait() -> None:
                ended.extend([await admin.wait(compaction_id, on_progress) for compaction_id in asked])

            await _work(spark, where, env, worker_options, until=wait, only=frozenset(asked))
            return tuple(ended)
        finally:
            with anyio.CancelScope(shield=True):
                await stores.aclose()

    async def stoppable() -> tuple[CompactionInfo, ...]:
        try:
            async with BlockingPortal() as portal:
                with anyio.CancelScope() as scope:
                    if on_started is not None:
                        on_started(lambda: portal.start_task_soon(scope.cancel))
                    return await main()
        except BaseExceptionGroup as group:
            # The group comes from the portal; callers expect the error itself.
            raise first_error(group) from group
        raise CompactionStopped("the compaction was stopped here; it stays scheduled for other workers")

    return anyio.run(stoppable)


def work(spark: "SparkSession", where: DatabaseLocation, *, worker_options: SparkWorkerOptions = DEFAULTS) -> None:
    """Execute all scheduled jobs until interrupted; see ``compact``."""

    async def main() -> None:
        await _work(spark, where, Env.system(), worker_options, until=anyio.sleep_forever)

    anyio.run(main)


async def _work(
    spark: "SparkSession",
    where: DatabaseLocation,
    env: Env,
    worker_options: SparkWorkerOptions,
    *,
    until: Callable[[], Awaitable[None]],
    only: frozenset[Ulid] | None = None,
) -> None:
    """Run a worker until ``until`` returns, or with ``only`` until one of these jobs has failed for good.

    Claims are released then.
    """
    metrics = Metrics()
    stores = where.connect(env, metrics, component="worker")
    executor = SparkExecutor(
        where,
        stores.main,
        env,
        worker_options.options,
        transforms=worker_options.transforms,
        sessions=open_sessions(where, _of_session(spark, worker_options.settings), lambda: spark),
        metrics=metrics,
    )
    manifests = ManifestStore(stores.main, where.root, env, metrics)
    compactions = CompactionsStore(stores.main, where.root, env, metrics)
    limited = AttemptLimit(executor)
    options = replace(worker_options.worker, only=only)
    worker = Worker(manifests, compactions, limited, env, options, metrics=metrics)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run, name="worker")
            if only is not None:
                tasks.start_soon(limited.raise_failure, name="limited")
            await until()
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise first_error(group) from group
    finally:
        await stores.aclose()


def _of_session(spark: "SparkSession", settings: SparkSettings) -> SparkSettings:
    """Return the settings with the fact that the session is over Connect, however it was made."""
    return replace(settings, master="sc://") if is_remote(spark) and not settings.is_remote else settings


ATTEMPTS_MAX = 3
"""Each of them is as many attempts at a task as Spark's settings allow."""


class AttemptLimit(JobExecutor):
    """Executes jobs with another executor, until an error shows that further attempts are useless."""

    def __init__(self, executor: JobExecutor, attempts_max: int = ATTEMPTS_MAX) -> None:
        self._executor = executor
        self._left = attempts_max
        self._error: Exception | None = None
        self._ended = anyio.Event()

    async def run(self, job: Job, progress: JobProgress) -> tuple[Sst, ...]:
        """See ``JobExecutor``."""
        try:
            return await self._executor.run(job, progress)
        except Exception as error:
            self._left -= 1
            if not self._left or not is_retryable(error):
                self._error = self._error or error
                self._ended.set()
            raise

    async def raise_failure(self) -> NoReturn:
        """Wait for an error that ends the attempts, and raise it.

        Raises:
            Exception: one that another attempt could not avoid, or that of the last attempt.
        """
        await self._ended.wait()
        assert self._error is not None, "set before"
        raise self._error
