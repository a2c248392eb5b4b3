"""Compactions on a Spark session that a program has: one that is asked for here, or whatever is scheduled.

Somebody else coordinates: `shale compactor`, or SlateDB.  This is a worker, and works only when jobs are scheduled.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import anyio
from anyio.from_thread import BlockingPortal

from shale.admin.compactions import CompactionAdmin
from shale.compaction.requests import CompactionRequest
from shale.compaction.status import CompactionInfo
from shale.engine.where import Where
from shale.env import Env
from shale.errors import ShaleError
from shale.kernels.choice import load_kernels
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_store import ManifestStore
from shale.service.spark_section import SparkSettings
from shale.telemetry.metrics import Metrics
from shale.types import Ulid
from shale_compactor.execution.options import ExecutorOptions
from shale_compactor.execution.transforms import TransformNames
from shale_compactor.first_error import first_error
from shale_compactor.worker.options import WorkerOptions
from shale_compactor.worker.worker import Worker
from shale_spark.compaction.executor import make_executor, require_possible
from shale_spark.compaction.patience import Patience
from shale_spark.tags import is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PATIENT = WorkerOptions(name="spark", compactions_poll_interval_s=1.0, persist_every_sst=True)
OnProgress = Callable[[CompactionInfo], None]
OnStarted = Callable[[Callable[[], object]], object]
"""Gets a function that ends the work from any thread."""


class Stopped(ShaleError):
    """Somebody ended the work; claims were given back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Working:
    """How a worker on Spark works.

    Args:
        settings: how many ranges, and where executors reach this process.
        options: how output is written, and how much memory a task takes.
        worker: how jobs are claimed and kept alive.
        transforms: the merge operator and the filters that every worker of the database uses.
    """

    settings: SparkSettings = field(default_factory=SparkSettings)
    options: ExecutorOptions = field(default_factory=ExecutorOptions)
    worker: WorkerOptions = _PATIENT
    transforms: TransformNames = field(default_factory=TransformNames)


DEFAULTS = Working()


def compact(
    spark: "SparkSession",
    where: Where,
    request: CompactionRequest,
    *,
    working: Working = DEFAULTS,
    on_progress: OnProgress | None = None,
    on_started: OnStarted | None = None,
) -> tuple[CompactionInfo, ...]:
    """Submit compactions, execute them on Spark once they are scheduled, and return when they have ended.

    Args:
        spark: stays open.
        where: the database; its store must be a URL.
        request: as for ``shale compaction submit``.
        working: see ``Working``.
        on_progress: called now and then with each compaction.
        on_started: called once with a function that any thread may call: the claim is given back then.

    Returns:
        how each one ended; ``error`` says why if it failed.

    Raises:
        InvalidCompaction: the request breaks a rule.
        Stopped: another thread asked for it; the compaction stays scheduled.
        ShaleError: the store or the session cannot be used; or executing a compaction failed in a way that no other
            attempt could avoid, or three times.  It stays scheduled, and other workers may take it.
    """
    # Nothing is submitted that nobody here could execute.
    require_possible(where, _of_session(spark, working.settings))

    async def main() -> tuple[CompactionInfo, ...]:
        env = Env.system()
        stores = where.connect(env, Metrics(), component="worker")
        try:
            admin = CompactionAdmin(stores.main, where.root, env)
            asked = [info.id for info in await admin.submit(request)]
            ended: list[CompactionInfo] = []

            async def wait() -> None:
                ended.extend([await admin.wait(compaction_id, on_progress) for compaction_id in asked])

            await _work(spark, where, env, working, until=wait, only=frozenset(asked))
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
            # The portal's: whoever calls this has heard of no tasks.
            raise first_error(group) from group
        raise Stopped("the compaction was stopped here; it stays scheduled for other workers")

    return anyio.run(stoppable)


def work(spark: "SparkSession", where: Where, *, working: Working = DEFAULTS) -> None:
    """Execute whatever coordinators schedule, until interrupted; see ``compact``."""

    async def main() -> None:
        await _work(spark, where, Env.system(), working, until=anyio.sleep_forever)

    anyio.run(main)


async def _work(
    spark: "SparkSession",
    where: Where,
    env: Env,
    working: Working,
    *,
    until: Callable[[], Awaitable[None]],
    only: frozenset[Ulid] | None = None,
) -> None:
    """Be a worker until ``until`` returns, or with ``only`` until one of these jobs turns out to be hopeless.

    Claims are given back then.
    """
    metrics = Metrics()
    stores = where.connect(env, metrics, component="worker")
    executor = make_executor(
        where,
        stores.main,
        env,
        working.options,
        transforms=working.transforms,
        settings=_of_session(spark, working.settings),
        metrics=metrics,
        session=lambda: spark,
    )
    manifests = ManifestStore(stores.main, where.root, env, metrics)
    compactions = CompactionsStore(stores.main, where.root, env, metrics)
    patience = Patience(executor)
    worker = Worker(manifests, compactions, patience, env, working.worker, metrics=metrics, only=only)
    try:
        await env.cpu.run(load_kernels)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run, name="worker")
            if only is not None:
                tasks.start_soon(patience.raise_end, name="patience")
            await until()
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise first_error(group) from group
    finally:
        await stores.aclose()


def _of_session(spark: "SparkSession", settings: SparkSettings) -> SparkSettings:
    """The settings, told whether the session is over Connect, whoever made it."""
    return replace(settings, master="sc://") if is_remote(spark) and not settings.is_remote else settings
