"""The garbage collector of one database: each task has its own interval, each pass reads its own state.

It keeps no state in the store; any number of collectors, Shale's and SlateDB's, may run at once.

Source: docs/reference/protocol.md 8.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import field, replace
from functools import partial

import anyio

from shale.core.lazy_dataclass import dataclass
from shale.env import Env
from shale.errors import InvalidDeletion, LatestRecordMissing, ProtocolPanic, ShaleError
from shale.gc.database import GcDatabase
from shale.gc.database_deleter import RESOURCE, DatabaseDeleter
from shale.gc.metrics import GcMetrics
from shale.gc.options import GcOptions, Task, TaskOptions
from shale.gc.passes import GcProgress, Pass
from shale.gc.plan import GcPlan, PlannedObject
from shale.gc.soft_destroy import DeletionPhase, DeletionStatus
from shale.gc.staged import sweep_staged
from shale.gc.sweeps import sweep_compacted, sweep_compactions, sweep_detach, sweep_manifests, sweep_wal
from shale.protocol.checkpoints import remove_expired_checkpoints
from shale.store.port import ObjectStore
from shale.telemetry import tracing
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.telemetry.metrics import Metrics

Sweep = Callable[[GcDatabase, Pass], Awaitable[None]]

SWEEPS: Mapping[Task, Sweep] = {
    Task.MANIFEST: sweep_manifests,
    Task.WAL: sweep_wal,
    Task.WAL_FENCE: sweep_wal,
    Task.COMPACTED: sweep_compacted,
    Task.COMPACTIONS: sweep_compactions,
    Task.DETACH: sweep_detach,
    Task.STAGED: sweep_staged,
}
_KEYS_SHOWN_MAX = 3
log = get_logger("gc")


@dataclass(slots=True)
class TaskState:
    """The state of one task, for health checks and status pages."""

    is_running: bool = False
    last_error: str | None = None
    last_success_ms: int | None = None
    progress: GcProgress = field(default_factory=GcProgress)


class Collector:
    """Use ``run`` until cancelled, or ``run_once``.

    Attributes:
        options: the current options; see ``reconfigure``.
        states: one entry for each enabled task.
        deleter: deletes the database once it is marked as destroyed and its grace period is over.
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
        on_progress: Callable[[Task, GcProgress], None] | None = None,
    ) -> None:
        metrics = metrics if metrics is not None else Metrics()
        self.options = options
        self.database = GcDatabase.at(store, root, env, metrics, options.protocol(), wal_store=wal_store)
        self.states = {task: TaskState() for task in options.enabled}
        self._triggers: dict[Task, anyio.Event] = {}
        self._env = env
        self._on_progress = on_progress
        self._instruments = GcMetrics(metrics)
        self._instruments.configured(options)
        self.deleter = DatabaseDeleter(self.database, lambda: self.options, self._instruments)
        if not options.boundary_files_enabled:
            log.warning(Event.BOUNDARY_DISABLED)

    def reconfigure(self, options: GcOptions) -> None:
        """Apply other options from the next pass on; a task that was disabled at the start stays disabled."""
        before, self.options = self.options, options
        self._instruments.configured(options)
        # A task that was disabled in between may be waiting for a whole interval.
        self.trigger(set(options.enabled) - set(before.enabled))

    def trigger(self, tasks: Iterable[Task] | None = None) -> None:
        """Start the next pass of these tasks, by default of all, as soon as their current pass has ended."""
        for task in self.states if tasks is None else tasks:
            if task in self._triggers:
                self._triggers[task].set()

    async def run(self) -> None:
        """Run all tasks until cancelled or until the database is deleted, soft-destroyed databases included.

        An error ends the pass, not the collector: the next pass tries again.

        Raises:
            ProtocolPanic: a protocol invariant is broken; nothing more may be written.
        """
        while self.deleter.state.phase is not DeletionPhase.GONE:
            self._triggers = {task: anyio.Event() for task in self.states}
            async with anyio.create_task_group() as tasks:
                for task in self.states:
                    tasks.start_soon(partial(self._every, task, tasks.cancel_scope), name=f"gc.{task}")
                tasks.start_soon(self.deleter.watch, tasks.cancel_scope, name="gc.database")
            await self.deleter.finish()
        log.info(Event.GC_DATABASE_REMOVED)

    async def run_once(self) -> Mapping[str, GcProgress]:
        """Run one pass of each enabled task, or delete the whole database if it is due for deletion.

        Returns:
            Progress by task; under ``RESOURCE`` if the whole database was deleted.

        Raises:
            LatestRecordMissing: there is no database.
            ShaleError: the first error of a pass; all other tasks run first.
        """
        if await self.deleter.delete_if_due():
            log.info(Event.GC_DATABASE_REMOVED)
            return {RESOURCE: self.deleter.progress}
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
        """Return what one pass of each enabled task would delete.  Nothing is written.

        Expired checkpoints are not removed first, so they still protect the objects that they name.

        Raises:
            LatestRecordMissing: there is no database.
            ShaleError: the first error of a pass.
        """
        made_at_ms = self._env.clock.now_ms()
        latest = await self.database.manifests.read_latest()
        compactions = await self.database.compactions.try_read_latest()
        objects: list[PlannedObject] = []
        for task in self.states:
            await self.sweep(task, dry_run=True, on_object=objects.append)
        return GcPlan(
            database=self.database.name,
            manifest_id=latest.id,
            compactions_id=compactions.id if compactions is not None else None,
            made_at_ms=made_at_ms,
            min_ages_s={task: options.min_age_s for task in self.states if (options := self.options.task(task))},
            objects=tuple(objects),
        )

    async def execute(self, plan: GcPlan) -> Mapping[str, GcProgress]:
        """Delete the objects of a saved plan, provided that all of them may still be deleted.

        Raises:
            InvalidDeletion: a planned object is needed again, or the plan is for another database; nothing is deleted.
            ShaleError: the first error of a pass.
        """
        await require_still_deletable(plan, await self.plan(), self.database)
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
        on_object: Callable[[PlannedObject], None] | None = None,
    ) -> None:
        """Run one pass of one task.

        Args:
            dry_run: write nothing, whatever the options say.
            only: the keys that may be deleted; ``None``: any key.
            on_object: called with each object of the plan.
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
            on_object=on_object,
            on_progress=self._on_progress,
        )
        state = self.states[task]
        state.progress = this.progress
        state.is_running = True
        try:
            with tracing.job("gc.run", resource=task.value):
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
                if not await self.deleter.is_caused_by_deletion(error):
                    if isinstance(error, ProtocolPanic):
                        raise
                    if await self.deleter.is_gone():
                        self.deleter.state = DeletionStatus(DeletionPhase.GONE)
                        everything.cancel()
                        return
                    log.error(Event.GC_TASK_FAILED, resource=task.value, error=error)
            except ShaleError as error:
                log.error(Event.GC_TASK_FAILED, resource=task.value, error=error)
            options = self.options.task(task) or TaskOptions()  # disabled meanwhile: wait
            interval_s = options.interval_s
            with anyio.move_on_after(max(0.0, started_s + interval_s - self._env.clock.monotonic_s())):
                await self._triggers[task].wait()
            self._triggers[task] = anyio.Event()

    async def _remove_expired_checkpoints(self, this: Pass) -> None:
        """Remove expired checkpoints, so that they pin nothing; skipped in a dry run and for a saved plan."""
        stored = await self.database.manifests.load()
        self._instruments.checkpoints(stored.value, this.now_ms)
        if this.options.dry_run or this.only is not None:
            return
        expired = await remove_expired_checkpoints(stored, this.now_ms)
        if expired:
            self._instruments.expired(len(expired))
            self._instruments.checkpoints(stored.value, this.now_ms)


async def require_still_deletable(plan: GcPlan, fresh: GcPlan, database: GcDatabase) -> None:
    """Check that a new plan contains each object of ``plan`` that still exists.

    Args:
        fresh: a plan made now, for the same tasks.

    Raises:
        InvalidDeletion: an object is needed again, or the plan is for another database.
    """
    if plan.database != fresh.database:
        raise InvalidDeletion(f"the plan is of {plan.database}, not of {fresh.database}")
    planned_now = {each.key for each in fresh.objects}
    needed: list[str] = []
    for task in plan.min_ages_s:
        missing = plan.keys(task) - planned_now
        if missing and task is not Task.DETACH:
            needed += [key async for key in database.existing(task, missing)]
    if needed:
        named = ", ".join(needed[:_KEYS_SHOWN_MAX])
        more = f" and {len(needed) - _KEYS_SHOWN_MAX} more" if len(needed) > _KEYS_SHOWN_MAX else ""
        raise InvalidDeletion(
            f"since the plan was made (manifest {plan.manifest_id}, now {fresh.manifest_id}) these are needed again: "
            f"{named}{more}; nothing was deleted, make a new plan"
        )
