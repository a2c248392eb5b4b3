"""The collector daemon, wired to the shell."""

from collections.abc import Mapping
from typing import Any

import anyio

from shale.service.health import OK, Verdict
from shale.service.process import Process
from shale_gc.collector import Collector
from shale_gc.settings import GcSettings


async def collect(process: Process[GcSettings]) -> None:
    """Collect until told to stop, or until the database is gone.

    Raises:
        LatestRecordMissing: there was no database within ``store.start_timeout``.
        ProtocolPanic: a boundary file disappeared, or worse.
    """
    collector = Collector(process.store, process.root, process.env, process.settings.options(), process.metrics)
    await process.wait_for(collector.database.manifests.read_latest)
    process.health.add_status(lambda: _status(collector))
    process.health.add_ready_check("passes", lambda: _passes(collector))
    process.on_reload.append(lambda settings: _take_over(collector, settings))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_run, collector, tasks.cancel_scope, name="collector")
        process.ready(tasks=[task.value for task in collector.states])
        await process.draining.wait()
        tasks.cancel_scope.cancel()


async def _run(collector: Collector, everything: anyio.CancelScope) -> None:
    await collector.run()
    everything.cancel()


def _take_over(collector: Collector, settings: GcSettings) -> None:
    """Intervals, ages and concurrency change while running; which tasks are on does not."""
    collector.options = settings.options()


def _passes(collector: Collector) -> Verdict:
    """Ready while every task's last finished pass was good; the first one under way counts as good.

    A retry under way does not, or a collector that fails all the time would look ready half of it.
    """
    for task, state in collector.states.items():
        if state.last_error is not None:
            return Verdict(ok=False, message=f"{task}: {state.last_error}")
    return OK


def _status(collector: Collector) -> Mapping[str, Any]:
    return {
        "tasks": {
            task.value: {
                "running": state.is_running,
                "last_success_ms": state.last_success_ms,
                "last_error": state.last_error,
            }
            for task, state in collector.states.items()
        }
    }
