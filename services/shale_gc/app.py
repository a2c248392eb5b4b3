"""The GC daemon: collectors, health checks and the admin API in one process."""

from collections.abc import Mapping
from typing import Any

import anyio

from shale.admin.checkpoints import CheckpointAdmin
from shale.admin.context import AdminContext
from shale.api.admin_openapi import GC, checkpoint_paths, openapi_route
from shale.api.routes.checkpoints import CheckpointRoutes
from shale.console.install import add_console
from shale.service.health import OK, HealthCheckResult
from shale.service.process import Process
from shale_gc.admin_api import GcApi, tasks_json
from shale_gc.backup_watch import watch_backups
from shale_gc.collector_pool import CollectorPool
from shale_gc.settings import GcSettings


async def collect(process: Process[GcSettings]) -> None:
    """Run GC until stopped, until the last database is deleted, or with ``once`` for one pass over each database.

    Raises:
        LatestRecordMissing: there was no database within ``store.start_timeout``; with ``once``, there is none.
        ShaleError: only with ``once``: the first error of a pass.
        ProtocolPanic: a boundary file is missing, or another protocol invariant is broken.
    """
    pool = CollectorPool(process)
    process.health.add_status(lambda: _status(pool))
    process.health.add_ready_check("passes", lambda: _passes(pool))
    process.add_reload_callback(pool.reload)
    _add_admin_calls(process, pool)
    add_console(process)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_run, pool, tasks.cancel_scope, name="collectors")
        if not process.settings.once:
            tasks.start_soon(watch_backups, process, lambda: [root for root, _ in pool], name="backups")
        await process.draining.wait()
        tasks.cancel_scope.cancel()


async def _run(pool: CollectorPool, everything: anyio.CancelScope) -> None:
    await (pool.run_once() if pool.process.settings.once else pool.run())
    everything.cancel()


def _add_admin_calls(process: Process[GcSettings], pool: CollectorPool) -> None:
    for route in GcApi(pool).routes():
        process.admin.add_route(route)
    if process.root not in process.settings.roots():
        process.admin.add_route(openapi_route(GC))
        return
    place = AdminContext.of(process.stores, process.root, process.env, process.metrics, component="gc")
    for route in CheckpointRoutes(CheckpointAdmin(place), process.env).routes():
        process.admin.add_route(route)
    process.admin.add_route(openapi_route(GC, checkpoint_paths(with_scope=False)))


def _passes(pool: CollectorPool) -> HealthCheckResult:
    """Report ready while the last finished pass of each task succeeded, or the first pass is running.

    A running retry of a failed pass does not count as ready: a task that always fails would look ready at times.
    """
    for root, collector in pool:
        for task, state in collector.states.items():
            if state.last_error is not None:
                return HealthCheckResult(ok=False, message=f"{root} {task}: {state.last_error}")
    return OK


def _status(pool: CollectorPool) -> Mapping[str, Any]:
    """Return the tasks of the process's main database, and the tasks of all databases by path."""
    tasks = {root: tasks_json(collector) for root, collector in pool}
    return {"tasks": tasks.get(pool.process.root, {}), "databases": tasks, "waiting": pool.waiting}
