"""The collector of one database: every task at its own pace, each pass on its own knowledge.

It is stateless; any number may run at once, ours and SlateDB's.

Source: docs/protocol.md 8.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial

import anyio

from shale.env import Env
from shale.errors import LatestRecordMissing, ProtocolPanic, ShaleError
from shale.protocol.checkpoints import remove_expired_checkpoints
from shale.store.port import ObjectStore
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.telemetry.metrics import Metrics
from shale_gc.database import Database
from shale_gc.instruments import GcInstruments
from shale_gc.options import GcOptions, Task
from shale_gc.passes import Pass
from shale_gc.sweep_compacted import sweep_compacted
from shale_gc.sweep_detach import sweep_detach
from shale_gc.sweep_versions import sweep_compactions, sweep_manifests
from shale_gc.sweep_wal import sweep_wal

Sweep = Callable[[Database, Pass], Awaitable[None]]

SWEEPS: Mapping[Task, Sweep] = {
    Task.MANIFEST: sweep_manifests,
    Task.WAL: sweep_wal,
    Task.WAL_FENCE: sweep_wal,
    Task.COMPACTED: sweep_compacted,
    Task.COMPACTIONS: sweep_compactions,
    Task.DETACH: sweep_detach,
}
log = get_logger("gc")


@dataclass(slots=True)
class TaskState:
    """How a task is doing, for health and people."""

    is_running: bool = False
    last_error: str | None = None
    last_success_ms: int | None = None


class Collector:
    """Use ``run`` until cancelled, or ``run_once``.

    Attributes:
        options: may be replaced while running; a task sees the new ones at its next pass.
        states: one per task that is on.
    """

    def __init__(
        self, store: ObjectStore, root: str, env: Env, options: GcOptions, metrics: Metrics | None = None
    ) -> None:
        metrics = metrics if metrics is not None else Metrics()
        self.options = options
        self.database = Database.at(store, root, env, metrics, options.protocol())
        self.states = {task: TaskState() for task in options.enabled}
        self._env = env
        self._instruments = GcInstruments(metrics)
        if not options.boundary_files_enabled:
            log.warning(Event.BOUNDARY_DISABLED)

    async def run(self) -> None:
        """Sweep until cancelled, or until the database is gone.

        An error ends a pass, not the collector: the next tick tries again.

        Raises:
            ProtocolPanic: something happened that must not be written on.
        """
        async with anyio.create_task_group() as tasks:
            for task in self.states:
                tasks.start_soon(partial(self._every, task, tasks.cancel_scope), name=f"gc.{task}")

    async def run_once(self) -> None:
        """One pass of every task that is on.

        Raises:
            LatestRecordMissing: there is no database.
            ShaleError: the first error of a pass.
        """
        for task in self.states:
            await self.sweep(task)

    async def sweep(self, task: Task) -> None:
        """One pass of one task."""
        options = self.options.task(task)
        if options is None:
            return
        started_s = self._env.clock.monotonic_s()
        this = Pass(
            task=task,
            now_ms=self._env.clock.now_ms(),
            options=options,
            instruments=self._instruments,
            delete_concurrency=self.options.delete_concurrency,
        )
        state = self.states[task]
        state.is_running = True
        try:
            await self._remove_expired_checkpoints(this)
            await SWEEPS[task](self.database, this)
        except ShaleError as error:
            state.last_error = str(error)
            self._instruments.failed(task, error, seconds=self._env.clock.monotonic_s() - started_s)
            raise
        finally:
            state.is_running = False
        state.last_error = None
        state.last_success_ms = self._env.clock.now_ms()
        seconds = self._env.clock.monotonic_s() - started_s
        self._instruments.ended(task, seconds=seconds, now_ms=state.last_success_ms)

    async def _every(self, task: Task, everything: anyio.CancelScope) -> None:
        while True:
            started_s = self._env.clock.monotonic_s()
            try:
                await self.sweep(task)
            except LatestRecordMissing:
                log.info(Event.GC_DATABASE_GONE)
                everything.cancel()
                return
            except ProtocolPanic:
                raise
            except ShaleError as error:
                log.error(Event.GC_TASK_FAILED, resource=task.value, error=error)
            options = self.options.task(task)
            interval_s = options.interval_s if options is not None else 0.0
            await anyio.sleep(max(0.0, started_s + interval_s - self._env.clock.monotonic_s()))

    async def _remove_expired_checkpoints(self, this: Pass) -> None:
        """Expired checkpoints must not pin anything in this pass; in a dry run they stay and still do."""
        stored = await self.database.manifests.load()
        self._instruments.checkpoints(stored.value, this.now_ms)
        if this.options.dry_run:
            return
        expired = await remove_expired_checkpoints(stored, this.now_ms)
        if expired:
            self._instruments.expired(len(expired))
            self._instruments.checkpoints(stored.value, this.now_ms)
