"""The collector of one database: every task at its own pace, each pass on its own knowledge.

It is stateless; any number may run at once, ours and SlateDB's.

Source: docs/protocol.md 8.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import anyio

from shale.env import Env
from shale.errors import LatestRecordMissing, ProtocolPanic, ShaleError
from shale.garbage.database import Database
from shale.garbage.doomed import PlannedObject
from shale.garbage.instruments import GcInstruments
from shale.garbage.options import GcOptions, Task, TaskOptions
from shale.garbage.passes import Pass, Progress
from shale.garbage.plan import GcPlan, require_still_unneeded
from shale.garbage.soft_destroy import Doom, DoomState
from shale.garbage.sweep_compacted import sweep_compacted
from shale.garbage.sweep_detach import sweep_detach
from shale.garbage.sweep_versions import sweep_compactions, sweep_manifests
from shale.garbage.sweep_wal import sweep_wal
from shale.garbage.undertaker import RESOURCE, Undertaker
from shale.protocol.checkpoints import remove_expired_checkpoints
from shale.store.port import ObjectStore
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.telemetry.metrics import Metrics

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
    progress: Progress = field(default_factory=Progress)


class Collector:
    """Use ``run`` until cancelled, or ``run_once``.

    Attributes:
        options: may be replaced while running; a task sees the new ones at its next pass.
        states: one per task that is on.
        undertaker: looks for the marker of a database that was destroyed.
    """

    def __init__(
        self,
        store: ObjectStore,
        root: str,
        env: Env,
        options: GcOptions,
        metrics: Metrics | None = None,
        *,
        wal_store: ObjectStore | None = None,
        on_progress: Callable[[Task, Progress], None] | None = None,
    ) -> None:
        metrics = metrics if metrics is not None else Metrics()
        self.options = options
        self.database = Database.at(store, root, env, metrics, options.protocol(), wal_store=wal_store)
        self.states = {task: TaskState() for task in options.enabled}
        self._hurries: dict[Task, anyio.Event] = {}
        self._env = env
        self._on_progress = on_progress
        self._instruments = GcInstruments(metrics)
        self.undertaker = Undertaker(self.database, lambda: self.options, self._instruments)
        if not options.boundary_files_enabled:
            log.warning(Event.BOUNDARY_DISABLED)

    def hurry(self, tasks: Iterable[Task] | None = None) -> None:
        """Begin the next pass of these tasks, by default of all, as soon as the one under way has ended."""
        for task in self.states if tasks is None else tasks:
            if task in self._hurries:
                self._hurries[task].set()

    async def run(self) -> None:
        """Sweep until cancelled, or until the database is gone; one that was destroyed softly is deleted in time.

        An error ends a pass, not the collector: the next tick tries again.

        Raises:
            ProtocolPanic: something happened that must not be written on.
        """
        while self.undertaker.state.doom is not Doom.GONE:
            self._hurries = {task: anyio.Event() for task in self.states}
            async with anyio.create_task_group() as tasks:
                for task in self.states:
                    tasks.start_soon(partial(self._every, task, tasks.cancel_scope), name=f"gc.{task}")
                tasks.start_soon(self.undertaker.watch, tasks.cancel_scope, name="gc.database")
            await self.undertaker.finish()
        log.info(Event.GC_DATABASE_GONE)

    async def run_once(self) -> Mapping[str, Progress]:
        """One pass of every task that is on; a database whose grace is over since it was destroyed goes as a whole.

        Returns:
            What was done, by task; under ``RESOURCE`` if it was the whole database.

        Raises:
            LatestRecordMissing: there is no database.
            ShaleError: the first error of a pass, once all other tasks had theirs.
        """
        if await self.undertaker.bury():
            log.info(Event.GC_DATABASE_GONE)
            return {RESOURCE: self.undertaker.progress}
        failed: list[ShaleError] = []
        for task in self.states:
            try:
                await self.sweep(task)
            except (LatestRecordMissing, ProtocolPanic):
                raise
            except ShaleError as error:
                log.error(Event.GC_TASK_FAILED, resource=task.value, error=error)
                failed.append(error)
        if failed:
            raise failed[0]
        return {task: state.progress for task, state in self.states.items()}

    async def plan(self) -> GcPlan:
        """What one pass of every task that is on would delete.  Nothing is written.

        Expired checkpoints are still there and keep what they name.

        Raises:
            LatestRecordMissing: there is no database.
            ShaleError: the first error of a pass.
        """
        made_at_ms = self._env.clock.now_ms()
        latest = await self.database.manifests.read_latest()
        compactions = await self.database.compactions.try_read_latest()
        objects: list[PlannedObject] = []
        for task in self.states:
            await self.sweep(task, dry_run=True, witness=objects.append)
        return GcPlan(
            database=self.database.name,
            manifest_id=latest.id,
            compactions_id=compactions.id if compactions is not None else None,
            made_at_ms=made_at_ms,
            min_ages_s={task: options.min_age_s for task in self.states if (options := self.options.task(task))},
            objects=tuple(objects),
        )

    async def carry_out(self, plan: GcPlan) -> Mapping[str, Progress]:
        """Delete what a saved plan names and what may be deleted now as well.

        Raises:
            InvalidDeletion: a planned object is needed again, or the plan is of another database.  Nothing happened.
            ShaleError: the first error of a pass.
        """
        await require_still_unneeded(plan, await self.plan(), self.database)
        tasks = [task for task in self.states if plan.keys(task)]
        for task in tasks:
            await self.sweep(task, only=plan.keys(task))
        return {task: self.states[task].progress for task in tasks}

    async def sweep(
        self,
        task: Task,
        *,
        dry_run: bool = False,
        only: frozenset[str] | None = None,
        witness: Callable[[PlannedObject], None] | None = None,
    ) -> None:
        """One pass of one task.

        Args:
            dry_run: write nothing, whatever the options say.
            only: the keys that may go.
            witness: is told every object of the plan.
        """
        options = self.options.task(task)
        if options is None:
            return
        started_s = self._env.clock.monotonic_s()
        this = Pass(
            task=task,
            now_ms=self._env.clock.now_ms(),
            options=replace(options, dry_run=True) if dry_run else options,
            instruments=self._instruments,
            delete_concurrency=self.options.delete_concurrency,
            clock=self._env.clock,
            only=only,
            filter=self.options.filter,
            witness=witness,
            on_progress=self._on_progress,
        )
        state = self.states[task]
        state.progress = this.progress
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
            except (LatestRecordMissing, ProtocolPanic) as error:
                if not await self.undertaker.explains(error):
                    if isinstance(error, ProtocolPanic):
                        raise
                    self.undertaker.state = DoomState(Doom.GONE)
                    everything.cancel()
                    return
            except ShaleError as error:
                log.error(Event.GC_TASK_FAILED, resource=task.value, error=error)
            options = self.options.task(task) or TaskOptions()  # one that was turned off meanwhile rests
            interval_s = options.interval_s
            with anyio.move_on_after(max(0.0, started_s + interval_s - self._env.clock.monotonic_s())):
                await self._hurries[task].wait()
            self._hurries[task] = anyio.Event()

    async def _remove_expired_checkpoints(self, this: Pass) -> None:
        """Expired checkpoints must not pin anything in this pass; in a dry run, or for a saved plan, they still do."""
        stored = await self.database.manifests.load()
        self._instruments.checkpoints(stored.value, this.now_ms)
        if this.options.dry_run or this.only is not None:
            return
        expired = await remove_expired_checkpoints(stored, this.now_ms)
        if expired:
            self._instruments.expired(len(expired))
            self._instruments.checkpoints(stored.value, this.now_ms)
