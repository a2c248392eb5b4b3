"""The compactor daemon: compactor, health checks and the admin API in one process."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

import anyio

from shale.admin.compactions import CompactionAdmin
from shale.api.admin_openapi import openapi_route
from shale.api.compactions_openapi import COMPACTIONS, SCHEMAS
from shale.console.install import add_console
from shale.service.process import Process
from shale_compactor.admin_api import CompactionsApi
from shale_compactor.compactor import Compactor
from shale_compactor.execution.job import JobExecutor
from shale_compactor.execution.routing import open_executor
from shale_compactor.poll_check import poll_check
from shale_compactor.settings import CompactorSettings


async def compact(process: Process[CompactorSettings]) -> None:
    """Run coordinator and worker until stopped; claims are released on exit.

    Raises:
        InvalidRequestError: a configured merge operator or compaction filter cannot be used.
        LiveCoordinator: another coordinator is running, and ``take_over`` is off.
        FencedError: another coordinator has taken over.
    """
    async with AsyncExitStack() as stack:
        executor = None
        if process.settings.options().embedded_worker:
            executor = await stack.enter_async_context(open_executor(process))
        await _compact(process, executor)


async def _compact(process: Process[CompactorSettings], executor: JobExecutor | None) -> None:
    settings = process.settings
    compactor = Compactor(
        process.store,
        process.root,
        process.env,
        settings.options(),
        process.metrics,
        executor=executor,
    )
    await process.wait_for(compactor.start)
    process.health.add_status(lambda: _status(compactor))
    process.add_reload_callback(lambda new: compactor.reconfigure(new.options()))
    interval_s = settings.compactor_options.poll_interval
    coordinator = compactor.coordinator
    process.health.add_ready_check("poll", poll_check(process.env.clock, lambda: coordinator.last_poll_s, interval_s))
    admin = CompactionAdmin(process.store, process.root, process.env, process.metrics)
    for route in CompactionsApi(admin, changed=coordinator.wake).routes():
        process.admin.add_route(route)
    process.admin.add_route(openapi_route(COMPACTIONS, schemas=SCHEMAS))
    add_console(process)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(compactor.run, name="compactor")
        process.ready(epoch=compactor.coordinator.manifest.epoch)
        await process.draining.wait()
        tasks.cancel_scope.cancel()


def _status(compactor: Compactor) -> Mapping[str, Any]:
    """Return the status fields of the compactor."""
    coordinator, worker = compactor.coordinator, compactor.worker
    return {
        "epoch": coordinator.manifest.epoch,
        "manifest_id": coordinator.manifest.id,
        "l0": sum(len(tree.l0) for _, tree in coordinator.manifest.value.trees()),
        "sorted_runs": sum(len(tree.compacted) for _, tree in coordinator.manifest.value.trees()),
        "compactions": {str(entry.id): entry.status.name.lower() for entry in coordinator.local.entries},
        "jobs": (
            {str(job_id): round(job.ratio, 3) for job_id, job in worker.jobs.items()} if worker is not None else {}
        ),
    }
