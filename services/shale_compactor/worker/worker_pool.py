"""The workers of one process: one for each database, independent of each other, with shared limits.

They share the job slots, the memory and threads of the executor.  A claim belongs to the worker of one database, so
nothing of the protocol depends on how many databases a process serves.
"""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
import structlog
from anyio.abc import TaskGroup

from shale.admin.discovery import watch_databases
from shale.concurrency.first_error import first_error
from shale.core.memory_account import MemoryPart
from shale.errors import FencedError, InvalidDbState, LatestRecordMissing, ProtocolPanic, ShaleError, UnavailableError
from shale.service.health import OK, Check, HealthCheckResult
from shale.service.process import Process
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.telemetry.metrics import Metrics
from shale_compactor.execution.executor import Executor, used_buffer_bytes
from shale_compactor.poll_check import poll_check
from shale_compactor.worker.database_worker import make_worker, require_workable
from shale_compactor.worker.job_slots import JobSlots
from shale_compactor.worker.settings import WorkerSettings
from shale_compactor.worker.worker import LONGEST_POLL, Worker

log = get_logger("worker")


class WorkerPool:
    """Workers by database path; the worker of a database that fails or is deleted ends alone.

    Attributes:
        workers: the workers that poll their database.
        waiting: databases that do not exist, yet or any more, with the reason.
        failed: databases that cannot be served, with the error; they are tried again.
    """

    def __init__(self, process: Process[WorkerSettings]) -> None:
        """Create a pool; no request is made yet.

        Raises:
            InvalidRequestError: a configured merge operator or compaction filter cannot be used.
        """
        settings = process.settings
        self.workers: dict[str, Worker] = {}
        self.waiting: dict[str, str] = {}
        self.failed: dict[str, str] = {}
        self.process = process
        self._settings = settings
        self._transforms = settings.transforms()
        self._slots = JobSlots(settings.worker_options().max_concurrent_compactions, process.env.clock)
        self._range_slots = anyio.Semaphore(settings.executor_options().max_active_ranges)
        process.memory.account.add_meter(
            MemoryPart.COMPACTION, lambda: used_buffer_bytes(settings.executor_options(), self._range_slots)
        )
        self._made: dict[str, Worker] = {}
        self._poll_checks: dict[str, Check] = {}

    async def run(self) -> None:
        """Serve all databases until cancelled; then release all claims.

        Raises:
            ProtocolPanic: a protocol invariant is broken; nothing more may be written.
        """
        try:
            async with anyio.create_task_group() as tasks:
                for root in self._settings.roots():
                    self._start(tasks, root, is_named=True)
                if self._settings.databases_below is not None:
                    tasks.start_soon(self._discover, tasks, self._settings.databases_below, name="discovery")
        except BaseExceptionGroup as group:
            raise first_error(group) from group

    def reload(self, settings: WorkerSettings) -> None:
        """Apply new options of the workers, and the new interval of searches."""
        self._settings = settings
        self._slots.set_limit(settings.worker_options().max_concurrent_compactions)
        for worker in self._made.values():
            worker.reconfigure(settings.worker_options())

    def status(self) -> Mapping[str, Any]:
        """Return the status fields: the jobs of each database, and the databases that are not served."""
        databases = {
            root: {
                "worker": worker.id,
                "jobs": {str(job_id): round(job.ratio, 3) for job_id, job in worker.jobs.items()},
            }
            for root, worker in sorted(self.workers.items())
        }
        limit = self._settings.worker_options().max_concurrent_compactions
        return {
            "max_concurrent_compactions": limit,
            "databases": databases,
            "waiting": self.waiting,
            "failed": self.failed,
        }

    def check(self) -> HealthCheckResult:
        """Report degraded while a database cannot be served, and not ready while none of them can.

        The other databases are served meanwhile, and a process that is not ready would stop a rolling update.
        """
        problems = dict(self.failed)
        problems |= {
            root: result.message
            for root, check in self._poll_checks.items()
            if root in self.workers and not (result := check()).ok
        }
        if not problems:
            return OK
        root, message = next(iter(sorted(problems.items())))
        serves_any = any(each not in problems for each in self.workers)
        return HealthCheckResult(ok=serves_any, message=f"{root}: {message}", degraded=True)

    async def _discover(self, tasks: TaskGroup, below: str) -> None:
        def found(root: str) -> None:
            if root not in self.workers and root not in self.waiting and root not in self.failed:
                self._start(tasks, root, is_named=False)

        await watch_databases(
            self.process.store,
            below,
            found=found,
            failed=lambda error: log.error(Event.WORKER_DATABASE_FAILED, path=below, error=error),
            interval_s=lambda: self._settings.databases_interval,
        )

    def _start(self, tasks: TaskGroup, root: str, *, is_named: bool) -> None:
        self.waiting[root] = "not checked yet"
        tasks.start_soon(partial(self._serve, root, is_named=is_named), name=f"worker {root}")

    async def _serve(self, root: str, *, is_named: bool) -> None:
        structlog.contextvars.bind_contextvars(db=self._settings.label_of(root))
        while True:
            try:
                await self._work(root)
            except (FencedError, ProtocolPanic):
                raise
            except (LatestRecordMissing, InvalidDbState) as error:
                self._not_served(root)
                if not is_named:  # It will be discovered again.
                    self._made.pop(root, None)
                    return
                self.waiting[root] = str(error)
            except ShaleError as error:
                # The other databases go on.
                self._not_served(root)
                self.failed[root] = f"{type(error).__name__}: {error}"
                log.error(Event.WORKER_DATABASE_FAILED, path=root, error=error)
            await anyio.sleep(self._settings.databases_interval)

    def _not_served(self, root: str) -> None:
        self.waiting.pop(root, None)
        self.failed.pop(root, None)
        self._metrics_of(root).gauge("slatedb_compactor_worker_up").set(0)

    async def _work(self, root: str) -> None:
        """Poll one database until its worker fails or the database is gone.

        Raises:
            LatestRecordMissing: the database does not exist, or is not complete.
            InvalidDbState: it is destroyed.
            ShaleError: it cannot be served.
        """
        await require_workable(self.process, root, self._metrics_of(root))
        worker = self._made.get(root)
        if worker is None:
            worker = self._made[root] = self._make(root)
        settings = self._settings.compactor_options.worker
        interval_s = LONGEST_POLL * settings.compactions_poll_interval
        self._poll_checks[root] = poll_check(self.process.env.clock, lambda: worker.last_poll_s, interval_s)
        self.waiting.pop(root, None)
        self.failed.pop(root, None)
        self.workers[root] = worker
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(worker.run, name=f"worker {root}")
                await self._watch(root)
        except BaseExceptionGroup as group:
            raise first_error(group) from group
        finally:
            del self.workers[root], self._poll_checks[root]

    async def _watch(self, root: str) -> None:
        """Check regularly that the database is there: polls do not notice that its files are gone.

        Raises:
            ShaleError: as ``require_workable``.
        """
        while True:
            await anyio.sleep(self._settings.databases_interval)
            with suppress(UnavailableError):  # The worker decides how long it bears that.
                await require_workable(self.process, root, self._metrics_of(root))

    def _make(self, root: str) -> Worker:
        process, metrics = self.process, self._metrics_of(root)
        executor = Executor(
            process.store,
            root,
            process.env,
            self._settings.executor_options(),
            transforms=self._transforms,
            metrics=metrics,
            range_slots=self._range_slots,
        )
        return make_worker(process, root, executor, metrics, options=self._settings.worker_options(), slots=self._slots)

    def _metrics_of(self, root: str) -> Metrics:
        return self._settings.metrics_of(self.process.metrics, root)
