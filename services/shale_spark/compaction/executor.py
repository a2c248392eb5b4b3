"""Execution of compaction jobs on Spark: one task for each key range, and one result despite failures.

The worker sees the plan, each finished SST and the bytes that were read, and persists them like those of a local job.
What a lost executor, task or driver leaves in the store are unreferenced SSTs.
"""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
from anyio.abc import TaskStatus

from shale.concurrency.first_error import first_error
from shale.engine.location import DatabaseLocation
from shale.env import Env
from shale.errors import InvalidRequestError, UnavailableError
from shale.service.config.spark_section import SparkSettings
from shale.sst.cache import BlockCache
from shale.sst.paths import SstPaths
from shale.sst.reader import SstReader
from shale.store.port import ObjectStore
from shale.telemetry.metrics import Metrics
from shale.types import KeyRange, Sst
from shale_compactor.execution.executor import ExecutorMetrics
from shale_compactor.execution.job import ExecutorLost, Job, JobExecutor, check_ascending
from shale_compactor.execution.options import ExecutorOptions
from shale_compactor.execution.progress import JobProgress
from shale_compactor.execution.subcompactions import ranges_of
from shale_compactor.execution.transforms import TransformNames
from shale_spark.compaction.messages import TaskReport
from shale_spark.compaction.range_output import RangeOutput
from shale_spark.compaction.spark_job import SparkJobFailed, run_spark_job
from shale_spark.compaction.task_plan import TaskPlan, encode_plan, require_store_url, trim_job
from shale_spark.compaction.task_server import TaskServer
from shale_spark.prerequisites import require_extra, require_java

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from shale_spark.compaction.session_provider import SessionProvider

_TOKEN_BITS = 128


class SparkExecutor(JobExecutor):
    """Executes merges on a Spark cluster.

    Args:
        where: the database, with a URL that executors can reach.
        store: the same database's store, for planning.
        env: clock and randomness.
        options: of one task: how output is written, and the memory of a range.
        transforms: the merge operator and filters, by name.
        sessions: provides the Spark session when it is needed.
        metrics: counts what tasks report.
    """

    def __init__(
        self,
        where: DatabaseLocation,
        store: ObjectStore,
        env: Env,
        options: ExecutorOptions,
        *,
        transforms: TransformNames,
        sessions: "SessionProvider",
        metrics: Metrics | None = None,
    ) -> None:
        self._where = where
        self._store = store
        self._env = env
        self._options = options
        self._transforms = transforms
        self._sessions = sessions
        self._metrics = ExecutorMetrics(metrics if metrics is not None else Metrics())

    async def run(self, job: Job, progress: JobProgress) -> tuple[Sst, ...]:
        """Merge what ``progress`` does not have yet; return all outputs in key order.

        Raises:
            SparkJobFailed: tasks failed too often.
            ExecutorLost: the session was lost, or none can be started.
            InvalidRequestError: executors cannot reach the store or this process, or there is no Java.
            ShaleError: see ``shale_compactor.execution.executor.Executor``.
        """
        session = await anyio.to_thread.run_sync(self._sessions.get, abandon_on_cancel=True)
        try:
            return await self._execute(session, job, progress)
        except SparkJobFailed as error:
            if await anyio.to_thread.run_sync(self._sessions.is_lost, abandon_on_cancel=True):
                raise ExecutorLost(f"the Spark session was lost: {error}") from error
            raise

    async def _execute(self, session: "SparkSession", job: Job, progress: JobProgress) -> tuple[Sst, ...]:
        if not progress.is_planned:
            progress.plan(await self._plan(job, session))
        context = progress.context()
        assert context is not None, "there is a plan"
        range_outputs = [RangeOutput(ssts=[*sub.output_ssts]) for sub in context.subcompactions]
        feed = ProgressRecorder(progress, self._metrics)
        token = f"{self._env.rng.getrandbits(_TOKEN_BITS):032x}"
        server = TaskServer(range_outputs, token, feed)
        try:
            await self._run_tasks(session, job, progress, server, token)
        except BaseExceptionGroup as group:
            raise first_error(group) from group
        finally:
            feed.ended(is_done=all(output.is_done for output in range_outputs))
        if not all(output.is_done for output in range_outputs):
            raise UnavailableError("Spark ended a compaction whose ranges have not all ended")
        outputs = progress.outputs()
        check_ascending(outputs)
        return outputs

    async def _run_tasks(
        self, session: "SparkSession", job: Job, progress: JobProgress, server: TaskServer, token: str
    ) -> None:
        host = self._sessions.event_host(session)
        # The server answers tasks until they are gone, even when this job is cancelled.
        serving = anyio.CancelScope(shield=True)

        async def serve_tasks(*, task_status: TaskStatus[int]) -> None:
            with serving:
                await server.serve(host, task_status=task_status)

        async with anyio.create_task_group() as tasks:
            port = await tasks.start(serve_tasks)
            try:
                plans = [
                    encode_plan(self._task(job, progress, index, (host, port), token))
                    for index in range(len(progress.ranges))
                ]
                await run_spark_job(session, plans, f"compaction-{job.id}", server)
            finally:
                serving.cancel()

    async def aclose(self) -> None:
        """Stop the session, if there is one."""
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._sessions.close)

    async def _plan(self, job: Job, session: "SparkSession") -> tuple[KeyRange, ...]:
        paths = SstPaths.of(self._where.root, job.manifest)
        cache = BlockCache(self._options.metadata_cache_bytes)
        transformer = self._options.sst.transformer
        reader = SstReader(self._store, paths, cache, self._env, with_filters=False, transformer=transformer)
        ranges = await anyio.to_thread.run_sync(self._sessions.ranges, session)
        return await ranges_of(job, reader, max_subcompactions=ranges)

    def _task(self, job: Job, progress: JobProgress, index: int, driver: tuple[str, int], token: str) -> TaskPlan:
        keys = progress.ranges[index]
        return TaskPlan(
            where=self._where,
            job=trim_job(job, keys),
            index=index,
            range=keys,
            retention_min_seq=progress.retention_min_seq,
            options=replace(self._options, max_active_ranges=1, max_subcompactions=1),
            transforms=self._transforms,
            driver=driver,
            token=token,
        )


class ProgressRecorder:
    """Records the reports of tasks in the progress of a job."""

    def __init__(self, progress: JobProgress, metrics: ExecutorMetrics) -> None:
        self._progress = progress
        self._metrics = metrics
        self._unfinished = [0] * len(progress.ranges)

    def started(self, number: int) -> None:
        """See ``TaskListener``: unfinished work of the previous attempt is merged again."""
        self._progress.rework_bytes += self._unfinished[number]
        self._unfinished[number] = 0

    def reported(self, number: int, report: TaskReport) -> None:
        """See ``TaskListener``."""
        self._progress.note_read(report.read_bytes)
        if report.merged_bytes:
            self._progress.note_rows(report.merged_bytes)
        # Part of these bytes may belong to the next SST, so this is a lower bound of the unfinished work.
        self._unfinished[number] = 0 if report.ssts else self._unfinished[number] + report.merged_bytes
        self._metrics.expired(*report.expired)
        self._metrics.folded(report.folded)
        if report.refused:
            self._metrics.refused(report.refused)
            self._progress.note_refused(report.refused, report.why_refused)
        for sst in report.ssts:
            self._progress.add(number, sst)

    def ended(self, *, is_done: bool) -> None:
        """Count unfinished work as repeated when a job ends early."""
        if not is_done:
            self._progress.rework_bytes += sum(self._unfinished)


def require_executable(where: DatabaseLocation, settings: SparkSettings) -> None:
    """Return if jobs can be executed with these settings, so that an error comes before the first job.

    Raises:
        InvalidRequestError: executors cannot reach the store, or a setting is missing that Spark Connect does not
            provide.
    """
    require_store_url(where)
    if settings.is_remote and settings.ranges is None:
        raise InvalidRequestError("spark.ranges must be set: Spark Connect does not say how many cores there are")
    if settings.is_remote and settings.event_host is None:
        raise InvalidRequestError("spark.event_host must be set: the driver of Spark Connect is another process")


def open_sessions(
    where: DatabaseLocation, settings: SparkSettings, session: "Callable[[], SparkSession] | None" = None
) -> "SessionProvider":
    """Return the provider of a worker's Spark session.

    Args:
        where: the database.
        settings: the section ``spark``.
        session: makes the session; by default it is made by the settings.

    Raises:
        InvalidRequestError: the extra or Java is not installed (names the command that installs it); or see
            ``require_executable``.
    """
    require_executable(where, settings)
    require_extra()
    if not settings.is_remote:
        require_java()
    # Imported here, so that a missing extra is a one-line error and not a traceback.
    from shale_spark.compaction.session_provider import SessionProvider
    from shale_spark.session import spark_session

    # A daemon's output is a log, where a progress bar has no place.
    conf = {"spark.ui.showConsoleProgress": "false", **dict(settings.conf)}
    make = session or partial(spark_session, settings, app_name=f"shale worker {where.root}", conf=conf)
    return SessionProvider(make, settings)


def make_executor(
    where: DatabaseLocation,
    store: ObjectStore,
    env: Env,
    options: ExecutorOptions,
    *,
    transforms: TransformNames,
    settings: SparkSettings,
    metrics: Metrics,
) -> SparkExecutor:
    """Make the executor that the entry point group ``shale.executors`` has under ``spark``.

    Args:
        where, store, env, options, transforms, metrics: see ``SparkExecutor``.
        settings: the section ``spark``.

    Raises:
        InvalidRequestError: see ``open_sessions``.
    """
    sessions = open_sessions(where, settings)
    return SparkExecutor(where, store, env, options, transforms=transforms, sessions=sessions, metrics=metrics)
