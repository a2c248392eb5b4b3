"""A worker: claims jobs, executes them, and says that it is alive (docs/protocol.md 6.9).

Workers know nothing of epochs.  A job belongs to the worker whose id stands in its Running entry; every write checks
that again, so a worker that slept too long finds its job gone and its result becomes garbage.
"""

from collections.abc import Awaitable, Callable, Mapping

import anyio
from anyio.abc import TaskGroup

from shale.env import Env
from shale.errors import FencedError, InvalidCompaction, ProtocolPanic
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_store import ManifestStore
from shale.telemetry.log import get_logger
from shale.telemetry.metrics import Metrics
from shale.types import Compaction, CompactionContext, Compactions, CompactionStatus, Manifest, Sst, Ulid
from shale_compactor.execution.job import JobExecutor, plan_job
from shale_compactor.execution.progress import JobProgress
from shale_compactor.nudge import Nudge
from shale_compactor.worker import claims
from shale_compactor.worker.contexts import DamagedProgress, check_context
from shale_compactor.worker.heartbeats import beat_forever
from shale_compactor.worker.instruments import WorkerMetrics
from shale_compactor.worker.ledger import Ledger
from shale_compactor.worker.options import WorkerOptions
from shale_compactor.worker.reports import Reports
from shale_compactor.worker.retries import Retries
from shale_compactor.worker.running import RunningJob

LONGEST_POLL = 1.5
"""Looks for jobs are up to so many intervals apart, and one interval less at least."""
_SECONDS_BETWEEN_PROGRESS_LINES = 10.0


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
        only: frozenset[Ulid] | None = None,
    ) -> None:
        """Claim nothing yet.

        Args:
            require_alive: raises once the database is marked as destroyed; it is asked at every look for jobs.
            only: the jobs that this worker is for; ``None``: all.
        """
        self.id = str(env.ids.ulid())
        self.options = options
        self.last_poll_s: float | None = None
        self._require_alive = require_alive
        self._only = only
        self._manifests = manifests
        self._executor = executor
        self._env = env
        self._jobs: dict[Ulid, RunningJob] = {}
        self._stopping: set[Ulid] = set()
        self._retries = Retries(options)
        self._jobs_ready = jobs_ready if jobs_ready is not None else Nudge()
        self._results_ready = results_ready if results_ready is not None else Nudge()
        self._news = Nudge()
        metrics = metrics if metrics is not None else Metrics()
        self._metrics = WorkerMetrics(metrics, env, options.name, self._jobs)
        self._reports = Reports(get_logger("worker", worker=self.id), self._metrics, env.clock)
        self._ledger = Ledger(
            compactions,
            self.id,
            env,
            progress=self._progress,
            on_seen=self._stop_what_is_not_ours,
            on_stamped=self._metrics.beat,
        )

    @property
    def jobs(self) -> Mapping[Ulid, RunningJob]:
        """What is executed now."""
        return self._jobs

    def reconfigure(self, options: WorkerOptions) -> None:
        """Take over other numbers from the next look for jobs and the next heartbeat on; the name stays."""
        self.options = options
        self._retries.options = options

    async def run(self) -> None:
        """Work until cancelled, then give all claims back."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._heartbeats, name="heartbeats")
                tasks.start_soon(self._report_progress, name="progress")
                await self._polls(tasks)
        finally:
            # Whoever comes next goes on at once instead of waiting for our silence to be noticed.
            with anyio.move_on_after(self.options.release_timeout_s, shield=True):
                released = await self._ledger.release_all()
                self._jobs.clear()
                for job_id in released:
                    self._reports.released(job_id)

    async def _polls(self, tasks: TaskGroup) -> None:
        while True:
            for job in await self.claim():
                tasks.start_soon(self._execute, job, name=f"job.{job.plan.id}")
            jitter = LONGEST_POLL - self._env.rng.random()
            await self._jobs_ready.wait(self.options.compactions_poll_interval_s * jitter)

    async def _heartbeats(self) -> None:
        await beat_forever(self._ledger, self._news, self._env, lambda: self.options)

    async def _report_progress(self) -> None:
        while True:
            await anyio.sleep(_SECONDS_BETWEEN_PROGRESS_LINES)
            self._reports.progress(self._jobs.values())

    async def claim(self) -> list[RunningJob]:
        """Take what is free, up to the free capacity, and look up what it needs."""
        if self._require_alive is not None:
            await self._require_alive()
        seen = await self._ledger.refresh()
        self.last_poll_s = self._env.clock.monotonic_s()
        if seen is None or not self._claimable(seen, 0):
            return []
        self._retries.keep_only({entry.id for entry in seen.entries if entry.is_active})
        claimed_s = self._env.clock.monotonic_s()
        claimed = await self._ledger.claim(self._claimable)
        if not claimed:
            return []
        # The manifest is read after the claim: it then holds every result that made the job possible.
        manifest = (await self._manifests.read_latest()).value
        begun = [await self._begin(entry, manifest, claimed_s) for entry in claimed]
        return [job for job in begun if job is not None]

    def _claimable(self, compactions: Compactions, just_claimed: int) -> set[Ulid]:
        excluded = self._jobs.keys() | self._stopping | self._retries.excluded(self._env.clock.monotonic_s())
        if self._only is not None:
            excluded |= {entry.id for entry in compactions.entries} - self._only
        capacity = self.options.max_concurrent_compactions - len(self._jobs) - just_claimed
        return {entry.id for entry in claims.claimable(compactions, excluded, capacity)}

    async def _begin(self, entry: Compaction, manifest: Manifest, claimed_s: float) -> RunningJob | None:
        """Plan a claimed job; one that cannot be planned is given back and waits."""
        self._metrics.claimed()
        self._reports.claimed(entry, attempt=self._retries.attempt(entry.id))
        try:
            plan = plan_job(entry, manifest)
            if entry.ctx is not None:
                check_context(entry.ctx)
        except (InvalidCompaction, DamagedProgress) as error:
            self._reports.not_begun(entry, error, attempt=self._retries.attempt(entry.id))
            self._retries.failed(entry.id, self._env.clock.monotonic_s())
            await self._ledger.release({entry.id: None})
            return None
        progress = JobProgress(
            retention_min_seq=manifest.recent_snapshot_min_seq,
            resumed=entry.ctx,
            on_sst=self._on_sst,
            on_read=self._metrics.read,
        )
        job = RunningJob(
            plan=plan,
            progress=progress,
            attempt=self._retries.attempt(entry.id),
            claimed_s=claimed_s,
            is_resumed=entry.ctx is not None,
        )
        progress.on_first_row = lambda: self._metrics.first_row(job)
        self._jobs[entry.id] = job
        self._news.call()
        return job

    def _on_sst(self, sst: Sst) -> None:
        self._metrics.wrote(sst.info.data_len)
        self._news.call()

    async def _execute(self, job: RunningJob) -> None:
        """One job from its plan to its end; whatever it raises is its own trouble, but for what ends the process."""
        self._metrics.started(job)
        try:
            with job.scope:
                outputs = await self._run(job)
                if outputs is not None:
                    await self._finish(job, outputs)
            if job.failure is not None:
                await self._fail(job, job.failure)
        finally:
            self._stopping.discard(job.plan.id)
            self._metrics.ended(job)

    async def _run(self, job: RunningJob) -> tuple[Sst, ...] | None:
        try:
            return await self._executor.run(job.plan, job.progress)
        except (FencedError, ProtocolPanic):
            raise
        except Exception as error:  # noqa: BLE001 - filters and operators are other people's code, and one job's trouble
            if not job.scope.cancel_called:
                job.failure = error
            return None

    async def _fail(self, job: RunningJob, error: Exception) -> None:
        """Report an attempt that failed, and give the job back."""
        self._reports.failed(job, error)
        self._retries.failed(job.plan.id, self._env.clock.monotonic_s())
        await self._ledger.release({job.plan.id: job.progress.context()})
        self._forget(job)
        self._reports.released(job.plan.id)

    async def _finish(self, job: RunningJob, outputs: tuple[Sst, ...]) -> None:
        job_id = job.plan.id
        job.is_finishing = True
        offered = False

        def change(value: Compactions) -> Compactions | None:
            nonlocal offered
            changed = claims.finish(value, job_id, outputs, self.id, self._env.clock.now_ms())
            offered = offered or changed is not None
            return changed

        value = await self._ledger.finish(change)
        self._forget(job)
        if not offered or not _is_handed_over(value.get(job_id), outputs):
            self._reports.lost(job_id, value.get(job_id))
            return
        self._reports.finished(job, outputs)
        self._results_ready.call()
        self._jobs_ready.call()

    def _progress(self) -> dict[Ulid, CompactionContext | None]:
        return {job_id: job.progress.context() for job_id, job in self._jobs.items()}

    def _stop_what_is_not_ours(self, compactions: Compactions) -> None:
        """Stop what we still execute and somebody has taken back, before anybody may claim it again."""
        for job_id, job in [*self._jobs.items()]:
            entry = compactions.get(job_id)
            if not claims.owns(entry, self.id) and not job.is_finishing:
                del self._jobs[job_id]
                self._stopping.add(job_id)
                job.scope.cancel()
                self._reports.lost(job_id, entry)
        for job_id, reason in claims.contradicted(compactions, self._progress(), self.id).items():
            job = self._jobs[job_id]
            if job.failure is None and not job.is_finishing:
                job.failure = DamagedProgress(reason)
                job.scope.cancel()

    def _forget(self, job: RunningJob) -> None:
        if self._jobs.get(job.plan.id) is job:
            del self._jobs[job.plan.id]


def _is_handed_over(entry: Compaction | None, outputs: tuple[Sst, ...]) -> bool:
    """Whether a result that was offered is in the stored entry, or is past that point already.

    A Failed entry without our outputs was cancelled before they arrived.
    """
    if entry is None or entry.status is CompactionStatus.COMPLETED:
        return True
    return entry.status in (CompactionStatus.COMPACTED, CompactionStatus.FAILED) and entry.output_ssts == outputs
