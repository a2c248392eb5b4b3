"""A worker: claims jobs, executes them, and says that it is alive (docs/protocol.md 6.9).

Workers know nothing of epochs.  A job belongs to the worker whose id stands in its Running entry; every write checks
that again, so a worker that slept too long finds its job gone and its result becomes garbage.
"""

from collections.abc import Awaitable, Callable, Mapping

import anyio
from anyio.abc import TaskGroup

from shale.compaction.specs import describe
from shale.env import Env
from shale.errors import FencedError, InvalidCompaction, ProtocolPanic, ShaleError
from shale.protocol.compactions_store import CompactionsStore, StoredCompactions
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.versioned import Versioned
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.telemetry.metrics import Metrics
from shale.types import Compaction, CompactionContext, Compactions, Manifest, Sst, Ulid
from shale_compactor.execution.job import JobExecutor, plan_job
from shale_compactor.execution.progress import JobProgress
from shale_compactor.nudge import Nudge
from shale_compactor.worker import claims
from shale_compactor.worker.instruments import WorkerMetrics
from shale_compactor.worker.options import WorkerOptions
from shale_compactor.worker.retries import Retries
from shale_compactor.worker.running import RunningJob

_SECONDS_BETWEEN_SST_HEARTBEATS = 1.0


class Worker:
    """Use ``run``; cancelling it gives all claims back."""

    def __init__(
        self,
        manifests: ManifestStore,
        compactions: CompactionsStore,
        executor: JobExecutor,
        env: Env,
        options: WorkerOptions,
        *,
        metrics: Metrics | None = None,
        require_alive: Callable[[], Awaitable[None]] | None = None,
        jobs_ready: Nudge | None = None,
        results_ready: Nudge | None = None,
    ) -> None:
        """``require_alive`` raises once the database is marked as destroyed; it is asked at every look for jobs."""
        self._require_alive = require_alive
        self.id = str(env.ids.ulid())
        self._manifests = manifests
        self._store = compactions
        self._executor = executor
        self._env = env
        self._options = options
        self._metrics = WorkerMetrics(metrics if metrics is not None else Metrics(), env, options.name)
        self._log = get_logger("worker", worker=self.id)
        self._jobs_ready = jobs_ready if jobs_ready is not None else Nudge()
        self._results_ready = results_ready if results_ready is not None else Nudge()
        self._sst_finished = Nudge()
        self._stored: StoredCompactions | None = None
        self._jobs: dict[Ulid, RunningJob] = {}
        self._stopping: set[Ulid] = set()
        self._retries = Retries(options)
        self.last_poll_s: float | None = None

    @property
    def jobs(self) -> Mapping[Ulid, RunningJob]:
        """What is executed now."""
        return self._jobs

    async def run(self) -> None:
        """Work until cancelled, then give all claims back."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._heartbeats, name="heartbeats")
                await self._polls(tasks)
        finally:
            # Whoever comes next goes on at once instead of waiting for our silence to be noticed.
            with anyio.move_on_after(self._options.release_timeout_s, shield=True):
                await self._release_everything()

    async def _polls(self, tasks: TaskGroup) -> None:
        while True:
            for job in await self.claim():
                tasks.start_soon(self._execute, job, name=f"job.{job.plan.id}")
            jitter = 0.5 + self._env.rng.random()
            await self._jobs_ready.wait(self._options.compactions_poll_interval_s * jitter)

    async def claim(self) -> list[RunningJob]:
        """Take what is free, up to the free capacity, and look up what it needs."""
        if self._require_alive is not None:
            await self._require_alive()
        stored = await self._refreshed()
        if stored is None:
            return []
        claimed = await self._claim_entries(stored)
        if not claimed:
            return []
        # The manifest is read after the claim: it then holds every result that made the job possible.
        manifest = (await self._manifests.read_latest()).value
        jobs = []
        for entry in claimed:
            job = await self._begin(entry, manifest)
            if job is not None:
                jobs.append(job)
        return jobs

    async def _refreshed(self) -> StoredCompactions | None:
        if self._stored is None:
            if await self._store.try_read_latest() is None:
                return None  # no coordinator has been here yet
            self._stored = await self._store.load()
        await self._stored.refresh()
        self.last_poll_s = self._env.clock.monotonic_s()
        return self._stored

    async def _claim_entries(self, stored: StoredCompactions) -> list[Compaction]:
        attempted: set[Ulid] = set()
        now_s = self._env.clock.monotonic_s()
        self._retries.keep_only({entry.id for entry in stored.value.entries if entry.is_active})

        def change(current: Versioned[Compactions]) -> Compactions | None:
            self._drop_reclaimed(current.value)
            excluded = self._jobs.keys() | self._stopping | self._retries.excluded(now_s)
            capacity = self._options.max_concurrent_compactions - len(self._jobs)
            # An answer that got lost: what we tried to take and now carries our name is ours.
            capacity -= sum(claims.owns(current.value.get(id_), self.id) for id_ in attempted)
            chosen = {entry.id for entry in claims.claimable(current.value, excluded, capacity)}
            attempted.update(chosen)
            return claims.claim(current.value, chosen, self.id, self._env.clock.now_ms()) if chosen else None

        committed = await stored.apply(change)
        return [entry for entry in committed.value.entries if entry.id in attempted and claims.owns(entry, self.id)]

    def _drop_reclaimed(self, compactions: Compactions) -> None:
        """Stop what we still execute and somebody has taken back, before anybody may claim it again."""
        for job_id, job in [*self._jobs.items()]:
            entry = compactions.get(job_id)
            if not claims.owns(entry, self.id) and not job.is_finishing:
                self._lose(job_id, entry)

    async def _begin(self, entry: Compaction, manifest: Manifest) -> RunningJob | None:
        self._metrics.claimed()
        self._log.info(Event.COMPACTION_CLAIMED, compaction_id=str(entry.id), spec=describe(entry.spec))
        try:
            plan = plan_job(entry, manifest)
        except InvalidCompaction as error:
            self._log.info(Event.COMPACTION_RELEASED, compaction_id=str(entry.id), reason=str(error))
            self._retries.failed(entry.id, self._env.clock.monotonic_s())
            await self._write(lambda value: claims.release(value, {entry.id: entry.ctx}, self.id))
            return None
        progress = JobProgress(
            retention_min_seq=manifest.recent_snapshot_min_seq, resumed=entry.ctx, on_sst=self._on_sst
        )
        job = RunningJob(
            plan=plan,
            progress=progress,
            attempt=self._retries.attempt(entry.id),
            started_s=self._env.clock.monotonic_s(),
        )
        progress.on_first_row = lambda: self._metrics.first_row(job)
        self._jobs[entry.id] = job
        return job

    def _on_sst(self, sst: Sst) -> None:
        self._metrics.wrote(sst.info.data_len)
        if self._options.persist_every_sst:
            self._sst_finished.call()

    async def _execute(self, job: RunningJob) -> None:
        self._metrics.started(job)
        self._metrics.observe([*self._jobs.values()])
        try:
            with job.scope:
                await self._execute_and_report(job)
        finally:
            self._stopping.discard(job.plan.id)
            self._metrics.ended(job)
            self._metrics.observe([*self._jobs.values()])

    async def _execute_and_report(self, job: RunningJob) -> None:
        job_id = job.plan.id
        try:
            outputs = await self._executor.run(job.plan, job.progress)
            await self._finish(job, outputs)
        except (FencedError, ProtocolPanic):
            raise
        except ShaleError as error:
            self._metrics.failed(job, error)
            self._log.error(
                Event.COMPACTION_FAILED,
                compaction_id=str(job_id),
                retryable=error.retryable,
                attempts=job.attempt,
                error=error,
            )
            self._retries.failed(job_id, self._env.clock.monotonic_s())
            if self._is_current(job):
                await self._release(job)
                self._forget(job)

    async def _finish(self, job: RunningJob, outputs: tuple[Sst, ...]) -> None:
        job_id = job.plan.id
        job.is_finishing = True
        done: Compaction | None = None

        def change(value: Compactions) -> Compactions | None:
            nonlocal done
            changed = claims.finish(value, job_id, outputs, self.id, self._env.clock.now_ms())
            if changed is not None:
                done = changed.get(job_id)
            return changed

        value = await self._write(change)
        self._forget(job)
        if done is None or not _is_handed_over(value.get(job_id), outputs):
            self._log_lost(job_id, value.get(job_id))
            return
        self._metrics.completed(job)
        self._log.info(
            Event.COMPACTION_FINISHED,
            compaction_id=str(job_id),
            spec=describe(job.plan.spec),
            bytes=sum(sst.estimated_size_bytes for sst in outputs),
            ssts=len(outputs),
            duration_ms=int((self._env.clock.monotonic_s() - job.started_s) * 1000),
        )
        self._results_ready.call()
        self._jobs_ready.call()

    async def _heartbeats(self) -> None:
        clock = self._env.clock
        while True:
            due_s = clock.monotonic_s() + self._options.heartbeat_interval_s
            earliest_s = clock.monotonic_s() + _SECONDS_BETWEEN_SST_HEARTBEATS
            await self._sst_finished.wait(due_s - clock.monotonic_s())
            await anyio.sleep(max(0.0, min(earliest_s, due_s) - clock.monotonic_s()))
            await self.beat()

    async def beat(self) -> None:
        """Stamp all own jobs and publish their progress; stop those that are not ours any more."""
        self._metrics.observe([*self._jobs.values()])
        if not self._jobs or self._stored is None:
            return
        self._log_progress()
        self._drop_reclaimed(await self._refreshed_value())
        if not self._jobs:
            return
        now_ms = self._env.clock.now_ms()
        value = await self._write(lambda value: claims.heartbeat(value, self._contexts(self._jobs), self.id, now_ms))
        self._metrics.beat(now_ms)
        self._drop_reclaimed(value)

    async def _release(self, job: RunningJob) -> None:
        """Give one job back with its progress."""
        contexts = self._contexts({job.plan.id: job})
        await self._write(lambda value: claims.release(value, contexts, self.id))
        self._log.info(Event.COMPACTION_RELEASED, compaction_id=str(job.plan.id))

    async def _release_everything(self) -> None:
        """Give back whatever carries our name, also what a cancelled claim may have left."""
        if self._stored is None:
            return
        contexts = self._contexts(self._jobs)
        owned = claims.owned(await self._refreshed_value(), self.id)
        await self._write(lambda value: claims.release(value, dict.fromkeys(owned) | contexts, self.id))
        self._jobs.clear()
        for job_id in owned:
            self._log.info(Event.COMPACTION_RELEASED, compaction_id=str(job_id))

    async def _refreshed_value(self) -> Compactions:
        assert self._stored is not None, "claimed before"
        return (await self._stored.refresh()).value

    async def _write(self, change: claims.Edit) -> Compactions:
        assert self._stored is not None, "claimed before"
        committed = await self._stored.apply(lambda current: change(current.value))
        return committed.value

    def _contexts(self, jobs: Mapping[Ulid, RunningJob]) -> dict[Ulid, CompactionContext | None]:
        return {job_id: job.progress.context() for job_id, job in jobs.items()}

    def _is_current(self, job: RunningJob) -> bool:
        return self._jobs.get(job.plan.id) is job

    def _forget(self, job: RunningJob) -> None:
        if self._is_current(job):
            del self._jobs[job.plan.id]

    def _lose(self, job_id: Ulid, entry: Compaction | None) -> None:
        """Stop a job whose entry is gone, finished, or somebody else's; its outputs are garbage."""
        self._jobs.pop(job_id).scope.cancel()
        self._stopping.add(job_id)
        self._log_lost(job_id, entry)

    def _log_lost(self, job_id: Ulid, entry: Compaction | None) -> None:
        owner = entry.worker.worker_id if entry is not None and entry.worker is not None else None
        self._log.warning(Event.COMPACTION_OWNERSHIP_LOST, compaction_id=str(job_id), owner=owner)

    def _log_progress(self) -> None:
        for job_id, job in self._jobs.items():
            self._log.info(
                Event.COMPACTION_PROGRESS,
                compaction_id=str(job_id),
                phase="write" if job.progress.outputs() else "read",
                bytes=job.progress.merged_bytes,
                ratio=round(job.ratio, 3),
            )


def _is_handed_over(entry: Compaction | None, outputs: tuple[Sst, ...]) -> bool:
    """Whether the stored entry carries our result, or is past that point already."""
    return entry is None or entry.status.is_finished or entry.output_ssts == outputs
