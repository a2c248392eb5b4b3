"""The compactor daemon: its parts, wired to the shell."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

import anyio

from shale.admin.compactions import CompactionAdmin
from shale.service.process import Process
from shale_compactor.admin_api import CompactionsApi
from shale_compactor.execution.job import JobExecutor
from shale_compactor.executors import open_executor
from shale_compactor.poll_check import poll_check
from shale_compactor.process import Compactor
from shale_compactor.settings import CompactorSettings


async def compact(process: Process[CompactorSettings]) -> None:
    """Coordinate and work until told to stop; claims are given back on the way out.

    Raises:
        InvalidRequestError: a merge operator or compaction filter that settings name cannot be used.
        LiveCoordinator: somebody else coordinates the database, and ``take_over`` is off.
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
        protocol=settings.protocol(),
        executor=executor,
    )
    await process.wait_for(compactor.start)
    process.health.add_status(lambda: _status(compactor))
    process.on_reload.append(lambda new: compactor.reconfigure(new.options()))
    interval_s = settings.compactor_options.poll_interval
    coordinator = compactor.coordinator
    process.health.add_ready_check("poll", poll_check(process.env.clock, lambda: coordinator.last_poll_s, interval_s))
    admin = CompactionAdmin(process.store, process.root, process.env, process.metrics)
    for route in CompactionsApi(admin, changed=coordinator.look).routes():
        process.admin.add_route(route)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(compactor.run, name="compactor")
        process.ready(epoch=compactor.coordinator.manifest.epoch)
        await process.draining.wait()
        tasks.cancel_scope.cancel()


def _status(compactor: Compactor) -> Mapping[str, Any]:
    """What people ask about."""
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
