"""The worker: claims jobs, executes them, and sends heartbeats (docs/reference/protocol.md 6.9).

Workers have no epoch.  A job belongs to the worker whose id is in its Running entry.  Each write checks that again, so
a worker that was suspended too long loses its job, and GC deletes its outputs.
"""

from collections.abc import Mapping
from functools import partial

import anyio
from anyio.abc import TaskGroup

from shale.concurrency.signal import WakeEvent
from shale.env import Env
from shale.errors import FencedError, InvalidCompaction, ProtocolPanic
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_store import ManifestStore
from shale.telemetry import tracing
from shale.telemetry.log import get_logger
from shale.telemetry.metrics import Metrics
from shale.types import Compaction, CompactionContext, Compactions, CompactionStatus, Manifest, Sst, Ulid
from shale_compactor.execution.job import JobExecutor, plan_job
from shale_compactor.execution.progress import JobProgress
from shale_compactor.runtime import CompactorRuntime
from shale_compactor.worker import claims
from shale_compactor.worker.compactions_client import CompactionsClient
from shale_compactor.worker.failures import FailureLog
from shale_compactor.worker.heartbeats import run_heartbeats
from shale_compactor.worker.job_slots import JobSlots
from shale_compactor.worker.metrics import WorkerMetrics
from shale_compactor.worker.options import WorkerOptions
from shale_compactor.worker.progress_checks import DamagedProgress, ForeignProgress, check_context
from shale_compactor.worker.reporting import WorkerReporter
from shale_compactor.worker.retries import Retries
from shale_compactor.worker.running_job import RunningJob

LONGEST_POLL = 1.5
"""Longest time between two polls in intervals; the shortest is one interval less."""
_SECONDS_BETWEEN_PROGRESS_LINES = 10.0


class Worker:
    """Use ``run``; cancelling it releases all claims."""

    def __init__(
        self,
        manifests: ManifestStore,
        compactions: CompactionsStore,
        executor: JobExecutor,
        env: Env,
        options: WorkerOptions,
        *,
        metrics: Metrics | None = None,
        runtime: CompactorRuntime | None = None,
    ) -> None:
        """Create a worker; no request is made yet.  ``runtime`` links it with the coordinator of this process."""
        runtime = runtime if runtime is not None else CompactorRuntime()
        self.id = runtime.worker_id or str(env.ids.ulid())
        self.options = options
        self.last_poll_s: float | None = None
        self._require_alive = runtime.require_alive
        self._manifests = manifests
        self._executor = executor
        self._env = env
        self._jobs: dict[Ulid, RunningJob] = {}
        self._stopping: set[Ulid] = set()
        self._retries = Retries(options)
        self._failures = FailureLog(compactions.records, self.id, env, self._retries)
        self._jobs_ready = runtime.jobs_ready
        self._slots = runtime.slots or JobSlots(options.max_concurrent_compactions, env.clock)
        self._share = self._slots.share(self._jobs_ready)
        self._results_ready = runtime.results_ready
        self._news = WakeEvent()
        metrics = metrics if metrics is not None else Metrics()
        self._metrics = WorkerMetrics(metrics, env, options.name, self._jobs)
        self._reporter = WorkerReporter(get_logger("worker", worker=self.id), self._metrics, env.clock)
        self.client = CompactionsClient(
            compactions,
            self.id,
            env,
            progress=self._progress,
            on_seen=self._stop_lost_jobs,
            on_stamped=self._metrics.on_heartbeat,
        )

    @property
    def jobs(self) -> Mapping[Ulid, RunningJob]:
        """The running jobs."""
        return self._jobs

    @property
    def is_idle(self) -> bool:
        """Whether no job is executed and none is being stopped."""
        return not self._jobs and not self._stopping

    def reconfigure(self, options: WorkerOptions) -> None:
        """Apply other options from the next poll and the next heartbeat on; the name does not change."""
        self.options = options
        self._retries.options = options
        self._slots.set_limit(options.max_concurrent_compactions)

    async def run(self) -> None:
        """Claim and execute jobs until cancelled, then release all claims."""
        self._metrics.polls(True)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._heartbeats, name="heartbeats")
                tasks.start_soon(self._report_progress, name="progress")
                await self._polls(tasks)
        finally:
            self._metrics.polls(False)
            self._share.close()
            # Another worker can continue at once, without waiting for the heartbeat timeout.
            with anyio.move_on_after(self.options.release_timeout_s, shield=True):
                released = await self.client.release_all()
                self._jobs.clear()
                for job_id in released:
                    self._reporter.released(job_id)

    async def _polls(self, tasks: TaskGroup) -> None:
        while True:
            for job in await self.claim():
                tasks.start_soon(self.execute, job, name=f"job.{job.plan.id}")
            jitter = LONGEST_POLL - self._env.rng.random()
            await self._jobs_ready.wait_for(self.options.compactions_poll_interval_s * jitter)

    async def _heartbeats(self) -> None:
        await run_heartbeats(self.client, self._news, self._env, lambda: self.options)

    async def _report_progress(self) -> None:
        while True:
            await anyio.sleep(_SECONDS_BETWEEN_PROGRESS_LINES)
            self._reporter.progress(self._jobs.values())

    async def claim(self) -> list[RunningJob]:
        """Claim jobs up to the free slots and look up their inputs."""
        await self._require_alive()
        seen = await self.client.refresh()
        self.last_poll_s = self._env.clock.monotonic_s()
        begun: list[RunningJob] = []
        slots = self._share.reserve(0 if seen is None else len(self._claimable(seen, len(seen.entries))))
        try:
            if seen is not None and slots:
                begun = await self._claim(seen, slots)
        finally:
            self._share.release(slots - len(begun))
        return begun

    async def _claim(self, seen: Compactions, slots: int) -> list[RunningJob]:
        self._retries.keep_only({entry.id for entry in seen.entries if entry.is_active})
        await self._failures.learn(self._claimable(seen, slots))
        if not self._claimable(seen, slots):
            return []
        claimed_s = self._env.clock.monotonic_s()
        claimed = await self.client.claim(lambda value, owned: self._claimable(value, slots - owned))
        if not claimed:
            return []
        # The manifest must be read after the claim: it then has all inputs of the job.
        manifest = (await self._manifests.read_latest()).value
        begun = [await self._begin(entry, manifest, claimed_s) for entry in claimed]
        return [job for job in begun if job is not None]

    def _claimable(self, compactions: Compactions, capacity: int) -> set[Ulid]:
        excluded = self._jobs.keys() | self._stopping | self._retries.excluded(self._env.clock.monotonic_s())
        if self.options.only is not None:
            excluded |= {entry.id for entry in compactions.entries} - self.options.only
        return {entry.id for entry in claims.claimable(compactions, excluded, capacity)}

    async def _begin(self, entry: Compaction, manifest: Manifest, claimed_s: float) -> RunningJob | None:
        """Plan a claimed job; release one that cannot be planned, with a delay, or end it."""
        exhausted = await self._failures.exhausted(entry.id, entry.spec)
        if exhausted is not None:
            await self._abandon(entry.id, exhausted)
            return None
        self._metrics.claimed()
        self._reporter.claimed(entry, attempt=self._retries.attempt(entry.id))
        try:
            plan = plan_job(entry, manifest)
            if entry.ctx is not None:
                check_context(entry.ctx)
        except InvalidCompaction as error:
            self._reporter.not_begun(entry, error, attempt=self._retries.attempt(entry.id))
            self._retries.failed(entry.id, self._env.clock.monotonic_s())
            await self.client.release({entry.id: None})
            return None
        except DamagedProgress as error:
            self._reporter.not_begun(entry, error, attempt=self._retries.attempt(entry.id))
            reason = await self._failures.failed(entry.id, entry.spec, error, outputs=0)
            await self._abandon(entry.id, reason or str(error))
            return None
        progress = JobProgress(
            retention_min_seq=manifest.recent_snapshot_min_seq,
            resumed=entry.ctx,
            on_read=self._metrics.read,
            on_first_row=partial(self._metrics.first_row, claimed_s, is_resumed=entry.ctx is not None),
        )
        job = RunningJob(
            plan=plan,
            progress=progress,
            attempt=self._retries.attempt(entry.id),
            claimed_s=claimed_s,
            claimed_ms=self._env.clock.now_ms(),
            is_resumed=entry.ctx is not None,
        )
        progress.on_sst = partial(self._on_sst, job)
        self._jobs[entry.id] = job
        self._news.notify()
        return job

    def _on_sst(self, job: RunningJob, sst: Sst) -> None:
        self._metrics.wrote(job, sst.info.data_len)
        self._news.notify()

    async def execute(self, job: RunningJob) -> None:
        """Execute one job.  Its errors fail only this job, except fencing and panics, which end the process."""
        self._metrics.started(job)
        try:
            with job.scope:
                with tracing.job("compaction.job", compaction_id=str(job.plan.id)):
                    outputs = await self._run(job)
                if outputs is not None:
                    await self._finish(job, outputs)
            if job.failure is not None:
                await self._fail(job, job.failure)
        finally:
            self._stopping.discard(job.plan.id)
            self._metrics.ended(job)
            self._share.release()

    async def _run(self, job: RunningJob) -> tuple[Sst, ...] | None:
        try:
            return await self._executor.run(job.plan, job.progress)
        except (FencedError, ProtocolPanic):
            raise
        except Exception as error:  # noqa: BLE001 - user code in filters and operators may raise anything; it fails one job
            if not job.scope.cancel_called:
                job.failure = error
            return None

    async def _fail(self, job: RunningJob, error: Exception) -> None:
        """Report a failed attempt; release the job for the next one, or end it if there is none."""
        job_id = job.plan.id
        self._reporter.failed(job, error)
        reason = await self._failures.failed(
            job_id, job.plan.spec, error, outputs=len(job.progress.outputs()), started_ms=job.claimed_ms
        )
        if reason is not None:
            await self._abandon(job_id, reason)
            self._forget(job)
            return
        await self.client.release({job_id: job.progress.context()})
        self._forget(job)
        self._reporter.released(job_id)

    async def _abandon(self, job_id: Ulid, reason: str) -> None:
        """End a job as Failed: its sources are free for other compactions."""
        self._retries.abandon(job_id)
        await self.client.fail(job_id)
        self._reporter.abandoned(job_id, reason)

    async def _finish(self, job: RunningJob, outputs: tuple[Sst, ...]) -> None:
        job_id = job.plan.id
        job.is_finishing = True
        offered = False

        def change(value: Compactions) -> Compactions | None:
            nonlocal offered
            changed = claims.finish(value, job_id, outputs, self.id, self._env.clock.now_ms())
            offered = offered or changed is not None
            return changed

        value = await self.client.finish(change)
        self._forget(job)
        if not offered or not _has_result(value.get(job_id), outputs):
            self._reporter.lost(job_id, value.get(job_id))
            return
        self._reporter.finished(job, outputs)
        self._results_ready.notify()
        self._jobs_ready.notify()

    def _progress(self) -> dict[Ulid, CompactionContext | None]:
        return {job_id: job.progress.context() for job_id, job in self._jobs.items()}

    def _stop_lost_jobs(self, compactions: Compactions) -> None:
        """Stop running jobs that this worker no longer owns, before it claims again."""
        for job_id, job in [*self._jobs.items()]:
            entry = compactions.get(job_id)
            if not claims.owns(entry, self.id) and not job.is_finishing:
                del self._jobs[job_id]
                self._stopping.add(job_id)
                job.scope.cancel()
                self._reporter.lost(job_id, entry)
        for job_id, reason in claims.invalid_progress(compactions, self._progress(), self.id).items():
            job = self._jobs[job_id]
            if job.failure is None and not job.is_finishing:
                job.failure = ForeignProgress(reason)
                job.scope.cancel()

    def _forget(self, job: RunningJob) -> None:
        if self._jobs.get(job.plan.id) is job:
            del self._jobs[job.plan.id]


def _has_result(entry: Compaction | None, outputs: tuple[Sst, ...]) -> bool:
    """Return whether the stored entry has the offered result, or has been processed since.

    A Failed entry without these outputs was cancelled before they were stored.
    """
    if entry is None or entry.status is CompactionStatus.COMPLETED:
        return True
    return entry.status in (CompactionStatus.COMPACTED, CompactionStatus.FAILED) and entry.output_ssts == outputs
