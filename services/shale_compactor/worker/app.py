"""The worker daemon: workers, executor and health checks in one process."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import anyio

from shale.api.admin_openapi import openapi_route
from shale.console.install import add_console
from shale.service.process import Process
from shale_compactor.execution.job import JobExecutor
from shale_compactor.execution.routing import open_executor
from shale_compactor.poll_check import poll_check
from shale_compactor.worker.database_worker import make_worker, require_workable
from shale_compactor.worker.settings import WorkerSettings
from shale_compactor.worker.worker import LONGEST_POLL, Worker
from shale_compactor.worker.worker_pool import WorkerPool


async def work(process: Process[WorkerSettings]) -> None:
    """Execute scheduled jobs of one or more databases until stopped; claims are released on exit.

    Raises:
        InvalidRequestError: a configured merge operator or compaction filter cannot be used.
        LatestRecordMissing: the only database did not appear within ``store.start_timeout``.
        InvalidDbState: it is destroyed.
        CorruptionError: its manifest or compactions are corrupt.  With several databases, the others are served.
    """
    process.admin.add_route(openapi_route())
    add_console(process)
    if not process.settings.serves_one:
        await _work_for_several(process)
        return
    async with open_executor(process) as executor:
        await _work(process, executor)


async def _work(process: Process[WorkerSettings], executor: JobExecutor) -> None:
    settings = process.settings
    await process.wait_for(partial(require_workable, process, process.root, process.metrics))
    worker = make_worker(process, process.root, executor, process.metrics, options=settings.worker_options())
    process.health.add_status(lambda: status(worker))
    process.add_reload_callback(lambda new: worker.reconfigure(new.worker_options()))
    interval_s = LONGEST_POLL * settings.compactor_options.worker.compactions_poll_interval
    process.health.add_ready_check("poll", poll_check(process.env.clock, lambda: worker.last_poll_s, interval_s))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run, name="worker")
        process.ready(worker=worker.id)
        await process.draining.wait()
        tasks.cancel_scope.cancel()


async def _work_for_several(process: Process[WorkerSettings]) -> None:
    pool = WorkerPool(process)
    process.health.add_status(pool.status)
    process.health.add_ready_check("databases", pool.check)
    process.add_reload_callback(pool.reload)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pool.run, name="workers")
        process.ready(databases=len(process.settings.roots()))
        await process.draining.wait()
        tasks.cancel_scope.cancel()


def status(worker: Worker) -> Mapping[str, Any]:
    """Return the status fields of the worker."""
    return {
        "worker": worker.id,
        "max_concurrent_compactions": worker.options.max_concurrent_compactions,
        "jobs": {str(job_id): round(job.ratio, 3) for job_id, job in worker.jobs.items()},
    }
