"""The worker of one database of a process, and the checks before it starts."""

from functools import partial

from shale.errors import LatestRecordMissing
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.markers import require_not_destroyed
from shale.service.process import Process
from shale.telemetry.metrics import Metrics
from shale_compactor.execution.job import JobExecutor
from shale_compactor.runtime import CompactorRuntime
from shale_compactor.worker.job_slots import JobSlots
from shale_compactor.worker.options import WorkerOptions
from shale_compactor.worker.settings import WorkerSettings
from shale_compactor.worker.worker import Worker


def make_worker(
    process: Process[WorkerSettings],
    root: str,
    executor: JobExecutor,
    metrics: Metrics,
    *,
    options: WorkerOptions,
    slots: JobSlots | None = None,
) -> Worker:
    """Create the worker of a database; no request is made yet.

    Args:
        process: the process and its settings.
        root: the path of the database in the store of the process.
        executor: executes the jobs.
        metrics: has the label of the database.
        options: of the worker, also after a reload.
        slots: for the jobs of several databases together; ``None``: slots of its own.
    """
    protocol = process.settings.protocol()
    return Worker(
        ManifestStore(process.store, root, process.env, metrics, protocol),
        CompactionsStore(process.store, root, process.env, metrics, protocol),
        executor,
        process.env,
        options,
        metrics=metrics,
        runtime=CompactorRuntime(require_alive=partial(require_not_destroyed, process.store, root), slots=slots),
    )


async def require_workable(process: Process[WorkerSettings], root: str, metrics: Metrics) -> None:
    """Return if the jobs of a database can be executed.  Its compactions file may be created later.

    Raises:
        LatestRecordMissing: the database does not exist, or is not complete.
        InvalidDbState: it is destroyed.
        CorruptionError: the manifest or the compactions are corrupt.
    """
    protocol = process.settings.protocol()
    latest = await ManifestStore(process.store, root, process.env, metrics, protocol).read_latest()
    if not latest.value.initialized:
        raise LatestRecordMissing("the database is still being built")
    await require_not_destroyed(process.store, root)
    await CompactionsStore(process.store, root, process.env, metrics, protocol).try_read_latest()
