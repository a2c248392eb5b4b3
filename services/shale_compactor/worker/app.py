"""The worker daemon: worker, executor and health checks in one process."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import anyio

from shale.api.admin_openapi import openapi_route
from shale.console.install import add_console
from shale.errors import LatestRecordMissing
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.markers import require_not_destroyed
from shale.service.process import Process
from shale_compactor.execution.job import JobExecutor
from shale_compactor.execution.routing import open_executor
from shale_compactor.poll_check import poll_check
from shale_compactor.runtime import CompactorRuntime
from shale_compactor.worker.settings import WorkerSettings
from shale_compactor.worker.worker import LONGEST_POLL, Worker


async def work(process: Process[WorkerSettings]) -> None:
    """Execute scheduled jobs until stopped; claims are released on exit.

    Raises:
        InvalidRequestError: a configured merge operator or compaction filter cannot be used.
        LatestRecordMissing: there was no database within ``store.start_timeout``.
        InvalidDbState: it is destroyed.
        CorruptionError: the manifest or the compactions are corrupt.
    """
    async with open_executor(process) as executor:
        await _work(process, executor)


async def _work(process: Process[WorkerSettings], executor: JobExecutor) -> None:
    settings = process.settings
    require_alive = partial(require_not_destroyed, process.store, process.root)
    protocol = settings.protocol()
    manifests = ManifestStore(process.store, process.root, process.env, process.metrics, protocol)
    compactions = CompactionsStore(process.store, process.root, process.env, process.metrics, protocol)
    await process.wait_for(partial(_require_database, manifests))
    await require_alive()
    # A corrupt file must be found before this process reports ready.
    await compactions.try_read_latest()
    worker = Worker(
        manifests,
        compactions,
        executor,
        process.env,
        settings.worker_options(),
        metrics=process.metrics,
        runtime=CompactorRuntime(require_alive=require_alive),
    )
    process.health.add_status(lambda: status(worker))
    process.add_reload_callback(lambda new: worker.reconfigure(new.worker_options()))
    interval_s = LONGEST_POLL * settings.compactor_options.worker.compactions_poll_interval
    process.health.add_ready_check("poll", poll_check(process.env.clock, lambda: worker.last_poll_s, interval_s))
    process.admin.add_route(openapi_route())
    add_console(process)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run, name="worker")
        process.ready(worker=worker.id)
        await process.draining.wait()
        tasks.cancel_scope.cancel()


async def _require_database(manifests: ManifestStore) -> None:
    """Check that there is an initialized database.  Its compactions file may be created later."""
    latest = await manifests.read_latest()
    if not latest.value.initialized:
        raise LatestRecordMissing("the database is still being built")


def status(worker: Worker) -> Mapping[str, Any]:
    """Return the status fields of the worker."""
    return {
        "worker": worker.id,
        "max_concurrent_compactions": worker.options.max_concurrent_compactions,
        "jobs": {str(job_id): round(job.ratio, 3) for job_id, job in worker.jobs.items()},
    }
