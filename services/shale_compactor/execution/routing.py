"""Choose the executor of jobs: this process, or a remote executor of another package.

A package registers a factory as an entry point of the group ``shale.executors``; ``shale_spark`` registers ``spark``.
It is imported only if the settings select it.
"""

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Protocol, TypeVar, cast

from shale.core.memory_account import MemoryPart
from shale.engine.location import DatabaseLocation
from shale.env import Env
from shale.errors import InvalidRequestError
from shale.plugins import EXECUTORS, resolve
from shale.service.config.spark_section import SparkSettings
from shale.service.process import Process
from shale.service.store_startup import store_options
from shale.store.port import ObjectStore
from shale.telemetry.events import Event
from shale.telemetry.metrics import Metrics
from shale.types import Sst
from shale_compactor.execution.executor import Executor
from shale_compactor.execution.job import ExecutorLost, Job, JobExecutor
from shale_compactor.execution.options import ExecutorOptions
from shale_compactor.execution.progress import JobProgress
from shale_compactor.execution.transforms import TransformNames
from shale_compactor.settings import MergingSettings

_S = TypeVar("_S", bound=MergingSettings)

RETRY_S = 300.0
"""How long jobs run locally after the remote executor was lost: a new attempt costs a session start of some seconds."""


class RemoteExecutor(JobExecutor, Protocol):
    """An executor that holds resources, for example a Spark session."""

    async def aclose(self) -> None:
        """Release the resources."""
        ...


class ExecutorFactory(Protocol):
    """The type of an entry point in ``shale.executors``."""

    def __call__(
        self,
        where: DatabaseLocation,
        store: ObjectStore,
        env: Env,
        options: ExecutorOptions,
        *,
        transforms: TransformNames,
        settings: SparkSettings,
        metrics: Metrics,
    ) -> RemoteExecutor:
        """Create the executor; may block."""
        ...


class RoutingExecutor(JobExecutor):
    """Routes large jobs to a remote executor and small ones to the local one.

    When the remote executor is lost, its jobs are completed locally, and so are new ones for ``RETRY_S``; then it is
    tried again.

    Args:
        local: executes small jobs.
        remote: executes jobs with at least ``min_bytes`` of input.
        env: provides the clock.
        min_bytes: least input of a remote job in bytes.
        on_lost: called when ``remote`` is lost, once until it has completed a job again.
    """

    def __init__(
        self,
        local: JobExecutor,
        remote: JobExecutor,
        env: Env,
        *,
        min_bytes: int,
        on_lost: Callable[[ExecutorLost], object],
    ) -> None:
        self._local = local
        self._remote = remote
        self._env = env
        self._min_bytes = min_bytes
        self._on_lost = on_lost
        self._is_lost = False
        self._local_until_s = -math.inf

    async def run(self, job: Job, progress: JobProgress) -> tuple[Sst, ...]:
        """See ``JobExecutor``.  A job that the remote executor started continues locally with the same ranges."""
        if job.input_bytes >= self._min_bytes and self._env.clock.monotonic_s() >= self._local_until_s:
            try:
                outputs = await self._remote.run(job, progress)
            except ExecutorLost as error:
                self._lose(error)
            else:
                self._is_lost = False
                return outputs
        return await self._local.run(job, progress)

    def _lose(self, error: ExecutorLost) -> None:
        self._local_until_s = self._env.clock.monotonic_s() + RETRY_S
        if not self._is_lost:
            self._is_lost = True
            self._on_lost(error)


@asynccontextmanager
async def open_executor(process: Process[_S]) -> AsyncIterator[JobExecutor]:
    """Open the executor that ``spark.executor`` selects.

    Raises:
        InvalidRequestError: a configured merge operator, filter or executor cannot be used.
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
    process.memory.account.add_meter(MemoryPart.COMPACTION, lambda: local.buffer_bytes)
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
            yield RoutingExecutor(
                local,
                remote,
                process.env,
                min_bytes=settings.spark.spark_min_bytes,
                on_lost=lambda error: process.log.warning(Event.EXECUTOR_UNAVAILABLE, executor="spark", error=error),
            )
    finally:
        await remote.aclose()


def _remote(process: Process[_S]) -> RemoteExecutor:
    settings = process.settings
    factory = cast("ExecutorFactory", resolve(EXECUTORS, "spark"))
    location = process.location
    where = DatabaseLocation(
        location.store_url, location.path, None, store_options(settings.store), settings.block_transformer()
    )
    return factory(
        where,
        process.store,
        process.env,
        settings.executor_options(),
        transforms=settings.transform_names(),
        settings=settings.spark.settings(),
        metrics=process.metrics,
    )
