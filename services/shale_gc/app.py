"""The collector daemon, wired to the shell."""

from collections.abc import Mapping
from typing import Any

import anyio

from shale.admin.checkpoints import CheckpointAdmin
from shale.admin.place import AdminPlace
from shale.api.admin_openapi import GC, checkpoint_paths, description_route
from shale.api.checkpoint_calls import CheckpointCalls
from shale.service.health import OK, Verdict
from shale.service.process import Process
from shale_gc.admin_calls import GcCalls, tasks_json
from shale_gc.fleet import Fleet
from shale_gc.settings import GcSettings


async def collect(process: Process[GcSettings]) -> None:
    """Collect until told to stop, until the last database is gone, or with ``once`` until each had its pass.

    Raises:
        LatestRecordMissing: there was no database within ``store.start_timeout``; with ``once``, there is none.
        ShaleError: only with ``once``: the first error of a pass.
        ProtocolPanic: a boundary file disappeared, or worse.
    """
    fleet = Fleet(process)
    process.health.add_status(lambda: _status(fleet))
    process.health.add_ready_check("passes", lambda: _passes(fleet))
    process.on_reload.append(fleet.take_over)
    _add_admin_calls(process, fleet)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_run, fleet, tasks.cancel_scope, name="collectors")
        await process.draining.wait()
        tasks.cancel_scope.cancel()


async def _run(fleet: Fleet, everything: anyio.CancelScope) -> None:
    await (fleet.run_once() if fleet.process.settings.once else fleet.run())
    everything.cancel()


def _add_admin_calls(process: Process[GcSettings], fleet: Fleet) -> None:
    for route in GcCalls(fleet).routes():
        process.admin.add_route(route)
    if process.root not in process.settings.roots():
        process.admin.add_route(description_route(GC))
        return
    place = AdminPlace.of(process.stores, process.root, process.env, process.metrics, component="gc")
    for route in CheckpointCalls(CheckpointAdmin(place), process.env).routes():
        process.admin.add_route(route)
    process.admin.add_route(description_route(GC, checkpoint_paths(with_scope=False)))


def _passes(fleet: Fleet) -> Verdict:
    """Ready while every task's last finished pass was good; the first one under way counts as good.

    A retry under way does not, or a collector that fails all the time would look ready half of it.
    """
    for root, collector in fleet:
        for task, state in collector.states.items():
            if state.last_error is not None:
                return Verdict(ok=False, message=f"{root} {task}: {state.last_error}")
    return OK


def _status(fleet: Fleet) -> Mapping[str, Any]:
    """The tasks of the database that the process is named after, and those of all of them by path."""
    tasks = {root: tasks_json(collector) for root, collector in fleet}
    return {"tasks": tasks.get(fleet.process.root, {}), "databases": tasks, "waiting": fleet.waiting}
