"""Carrying out jobs on Spark: one task for each key range, and one result whatever dies meanwhile.

The worker around this knows no difference: it sees the plan, each finished SST and the bytes that were read, and
persists them as those of a local job.  What a lost executor, task or driver leaves behind are SSTs that nobody names.
"""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
from anyio.abc import TaskStatus

from shale.engine.where import Where
from shale.env import Env
from shale.errors import InvalidRequestError, UnavailableError
from shale.service.spark_section import SparkSettings
from shale.sst.cache import BlockCache
from shale.sst.paths import SstPaths
from shale.sst.reader import SstReader
from shale.store.port import ObjectStore
from shale.telemetry.metrics import Metrics
from shale.types import KeyRange, Sst
from shale_compactor.execution.instruments import ExecutorMetrics
from shale_compactor.execution.job import ExecutorLost, Job, JobExecutor, check_ascending
from shale_compactor.execution.options import ExecutorOptions
from shale_compactor.execution.planning import ranges_of
from shale_compactor.execution.progress import JobProgress
from shale_compactor.execution.transforms import TransformNames
from shale_compactor.first_error import first_error
from shale_spark.compaction.chain import Chain
from shale_spark.compaction.channel import Channel
from shale_spark.compaction.frames import Report
from shale_spark.compaction.plan import TaskPlan, cut_job, encode_plan, require_reachable
from shale_spark.compaction.stage import SparkFailed, run_stage
from shale_spark.extra import require_extra
from shale_spark.java import require_java

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from shale_spark.compaction.sessions import Sessions

_TOKEN_BITS = 128


class SparkExecutor(JobExecutor):
    """Merges on the executors of a Spark cluster.

    Args:
        where: the database, reachable by its URL from executors.
        store: the same from here, for planning.
        env: time and chance.
        options: of one task: how output is written, and how much memory a range takes.
        transforms: what happens to rows, by name.
        sessions: the Spark session, when it is needed.
        metrics: counts what tasks report.
    """

    def __init__(
        self,
        where: Where,
        store: ObjectStore,
        env: Env,
        options: ExecutorOptions,
        *,
        transforms: TransformNames,
        sessions: "Sessions",
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
        """Merge everything that ``progress`` does not have yet; returns all outputs in key order.

        Raises:
            SparkFailed: tasks failed too often.
            ExecutorLost: the session was lost, or none can be started.
            InvalidRequestError: executors cannot reach the store or this process, or there is no Java.
            ShaleError: see ``shale_compactor.execution.executor.Executor``.
        """
        session = await anyio.to_thread.run_sync(self._sessions.get, abandon_on_cancel=True)
        try:
            return await self._carry_out(session, job, progress)
        except SparkFailed as error:
            if await anyio.to_thread.run_sync(self._sessions.is_lost, abandon_on_cancel=True):
                raise ExecutorLost(f"the Spark session was lost: {error}") from error
            raise

    async def _carry_out(self, session: "SparkSession", job: Job, progress: JobProgress) -> tuple[Sst, ...]:
        if not progress.is_planned:
            progress.plan(await self._plan(job, session))
        context = progress.context()
        assert context is not None, "there is a plan"
        chains = [Chain(ssts=[*sub.output_ssts]) for sub in context.subcompactions]
        feed = ProgressFeed(progress, self._metrics)
        token = f"{self._env.rng.getrandbits(_TOKEN_BITS):032x}"
        channel = Channel(chains, token, feed)
        try:
            await self._run_tasks(session, job, progress, channel, token)
        except BaseExceptionGroup as group:
            raise first_error(group) from group
        finally:
            feed.ended(is_done=all(chain.is_done for chain in chains))
        if not all(chain.is_done for chain in chains):
            raise UnavailableError("Spark ended a compaction whose ranges have not all ended")
        outputs = progress.outputs()
        check_ascending(outputs)
        return outputs

    async def _run_tasks(
        self, session: "SparkSession", job: Job, progress: JobProgress, channel: Channel, token: str
    ) -> None:
        host = self._sessions.event_host(session)
        # Tasks are heard, and refused, until they are gone, also when this job is cancelled.
        hearing = anyio.CancelScope(shield=True)

        async def hear(*, task_status: TaskStatus[int]) -> None:
            with hearing:
                await channel.serve(host, task_status=task_status)

        async with anyio.create_task_group() as tasks:
            port = await tasks.start(hear)
            try:
                plans = [
                    encode_plan(self._task(job, progress, index, (host, port), token))
                    for index in range(len(progress.ranges))
                ]
                await run_stage(session, plans, f"compaction-{job.id}", channel)
            finally:
                hearing.cancel()

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
            job=cut_job(job, keys),
            index=index,
            range=keys,
            retention_min_seq=progress.retention_min_seq,
            options=replace(self._options, max_active_ranges=1, max_subcompactions=1),
            transforms=self._transforms,
            driver=driver,
            token=token,
        )


class ProgressFeed:
    """Turns what tasks report into the progress of a job."""

    def __init__(self, progress: JobProgress, metrics: ExecutorMetrics) -> None:
        self._progress = progress
        self._metrics = metrics
        self._unfinished = [0] * len(progress.ranges)

    def started(self, number: int) -> None:
        """See ``Listener``: what the attempt before has merged and not finished is merged again."""
        self._progress.repeated_bytes += self._unfinished[number]
        self._unfinished[number] = 0

    def reported(self, number: int, report: Report) -> None:
        """See ``Listener``."""
        self._progress.note_read(report.read_bytes)
        if report.merged_bytes:
            self._progress.note_rows(report.merged_bytes)
        # The SST after a finished one may have begun: what is counted as in vain is the least that was.
        self._unfinished[number] = 0 if report.ssts else self._unfinished[number] + report.merged_bytes
        self._metrics.expired(*report.expired)
        self._metrics.folded(report.folded)
        if report.refused:
            self._metrics.refused(report.refused)
            self._progress.note_refused(report.refused, report.why_refused)
        for sst in report.ssts:
            self._progress.add(number, sst)

    def ended(self, *, is_done: bool) -> None:
        """Whatever is unfinished when a job ends early was in vain."""
        if not is_done:
            self._progress.repeated_bytes += sum(self._unfinished)


def require_possible(where: Where, settings: SparkSettings) -> None:
    """Return if jobs can be carried out like this: what is wrong with all of them is better said before the first one.

    Raises:
        InvalidRequestError: executors cannot reach the store, or a session over Connect is not told what only others
            know.
    """
    require_reachable(where)
    if settings.is_remote and settings.ranges is None:
        raise InvalidRequestError("spark.ranges must be set: Spark Connect does not say how many cores there are")
    if settings.is_remote and settings.event_host is None:
        raise InvalidRequestError("spark.event_host must be set: the driver of Spark Connect is another process")


def make_executor(
    where: Where,
    store: ObjectStore,
    env: Env,
    options: ExecutorOptions,
    *,
    transforms: TransformNames,
    settings: SparkSettings,
    metrics: Metrics,
    session: "Callable[[], SparkSession] | None" = None,
) -> SparkExecutor:
    """What the entry point group ``shale.executors`` has under ``spark``.

    Args:
        where, store, env, options, transforms, metrics: see ``SparkExecutor``.
        settings: the section ``spark``.
        session: makes the session otherwise than by the settings.

    Raises:
        InvalidRequestError: the extra or Java is not installed, and names the command that installs it; or see
            ``require_possible``.
    """
    require_possible(where, settings)
    require_extra()
    if not settings.is_remote:
        require_java()
    # Imported here, so that its absence is one line and not a traceback.
    from shale_spark.compaction.sessions import Sessions
    from shale_spark.session import spark_session

    # A daemon's output is a log; a bar in it belongs to nobody.
    conf = {"spark.ui.showConsoleProgress": "false", **dict(settings.conf)}
    make = session or partial(spark_session, settings, app_name=f"shale worker {where.root}", conf=conf)
    return SparkExecutor(
        where, store, env, options, transforms=transforms, sessions=Sessions(make, settings), metrics=metrics
    )
