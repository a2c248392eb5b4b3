"""Who carries out the jobs of a process: the process itself, or an executor that another package brings.

Such a package registers a factory under an entry point of the group ``shale.executors``; ``spark`` is ours.  Nothing
here imports it before settings ask for it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Protocol, TypeVar, cast

from shale.engine.where import Where
from shale.env import Env
from shale.errors import InvalidRequestError
from shale.service.plugins import EXECUTORS, resolve
from shale.service.process import Process
from shale.service.spark_section import SparkSettings
from shale.service.store_start import store_options
from shale.store.port import ObjectStore
from shale.telemetry.events import Event
from shale.telemetry.metrics import Metrics
from shale.types import Sst
from shale_compactor.execution.executor import Executor
from shale_compactor.execution.job import Job, JobExecutor
from shale_compactor.execution.options import ExecutorOptions
from shale_compactor.execution.progress import JobProgress
from shale_compactor.execution.transforms import TransformNames
from shale_compactor.settings import MergingSettings

_S = TypeVar("_S", bound=MergingSettings)


class RemoteExecutor(JobExecutor, Protocol):
    """One that holds something, a session for instance."""

    async def aclose(self) -> None:
        """Let go of it."""
        ...


class ExecutorFactory(Protocol):
    """What an entry point of the group is."""

    def __call__(
        self,
        where: Where,
        store: ObjectStore,
        env: Env,
        options: ExecutorOptions,
        *,
        transforms: TransformNames,
        settings: SparkSettings,
        metrics: Metrics,
    ) -> RemoteExecutor:
        """Make one; it may block."""
        ...


class ChosenExecutor(JobExecutor):
    """Jobs go where they suit: starting tasks elsewhere costs more than a small merge.

    Args:
        local: for small jobs.
        remote: for jobs with at least ``min_bytes`` of input.
    """

    def __init__(self, local: JobExecutor, remote: JobExecutor, *, min_bytes: int) -> None:
        self._local = local
        self._remote = remote
        self._min_bytes = min_bytes

    async def run(self, job: Job, progress: JobProgress) -> tuple[Sst, ...]:
        """See ``JobExecutor``.  A job that the other one began is taken over with its plan."""
        chosen = self._remote if job.input_bytes >= self._min_bytes else self._local
        return await chosen.run(job, progress)


@asynccontextmanager
async def open_executor(process: Process[_S]) -> AsyncIterator[JobExecutor]:
    """What ``spark.executor`` says.

    Raises:
        InvalidRequestError: a merge operator, a filter or the executor that settings name cannot be used.
    """
    settings = process.settings
    local = Executor(
        process.store,
        process.root,
        process.env,
        settings.executor_options(),
        transforms=settings.transforms(),
        metrics=process.metrics,
    )
    if settings.spark.executor == "local":
        yield local
        return
    try:
        remote = await process.env.cpu.run(partial(_remote, process))
    except InvalidRequestError as error:
        if settings.spark.executor == "spark":
            raise
        process.log.warning(Event.EXECUTOR_UNAVAILABLE, executor="spark", error=error)
        yield local
        return
    try:
        if settings.spark.executor == "spark":
            yield remote
        else:
            yield ChosenExecutor(local, remote, min_bytes=settings.spark.spark_min_bytes)
    finally:
        await remote.aclose()


def _remote(process: Process[_S]) -> RemoteExecutor:
    settings = process.settings
    factory = cast("ExecutorFactory", resolve(EXECUTORS, "spark"))
    location = process.location
    where = Where(location.store_url, location.path, None, store_options(settings.store))
    return factory(
        where,
        process.store,
        process.env,
        settings.executor_options(),
        transforms=settings.transform_names(),
        settings=settings.spark.settings(),
        metrics=process.metrics,
    )
