"""The coordinator: the only process that schedules compactions and commits their results.

It holds the compactor epoch in manifest and compactions.  A round refreshes the state (``state``), plans
(``planning.round``), writes the plan (``state_writer``) and reports it (``reporting``).  This module is the loop.

Source: docs/reference/protocol.md 6.1, 6.4, 6.6.
"""

from dataclasses import replace

from shale.compaction.entries import count_claimable, with_status
from shale.env import Env
from shale.errors import FencedError
from shale.protocol.compactions_store import CompactionsStore, FenceableCompactions
from shale.protocol.manifest_store import FenceableManifest, ManifestStore
from shale.telemetry.metrics import Metrics
from shale.types import Compactions, CompactionStatus, Ulid
from shale_compactor.coordinator.job_log import JobLog
from shale_compactor.coordinator.leadership import acquire_leadership, release_leadership
from shale_compactor.coordinator.options import CoordinatorOptions, max_poll_gap_s
from shale_compactor.coordinator.reporting import CoordinatorReporter
from shale_compactor.coordinator.state import CoordinatorState, refresh_state
from shale_compactor.coordinator.state_writer import repair_duplicate_l0, write_both
from shale_compactor.coordinator.view_sizes import MeasuredScheduler
from shale_compactor.planning.merge_state import MergedState
from shale_compactor.planning.reclaim import ObservedHeartbeat, observe_heartbeats
from shale_compactor.planning.round import Policy, SourceSet, plan_commit_round, plan_round, update_cooldown
from shale_compactor.planning.step import PlanningStep
from shale_compactor.runtime import CompactorRuntime


class Coordinator:
    """Use ``start`` once, then ``run``, then ``release_leadership``; tests call the rounds themselves."""

    def __init__(
        self,
        manifests: ManifestStore,
        compactions: CompactionsStore,
        env: Env,
        options: CoordinatorOptions,
        metrics: Metrics | None = None,
        *,
        runtime: CompactorRuntime | None = None,
    ) -> None:
        """Create a coordinator; no request is made yet.  ``runtime`` links it with the worker of this process."""
        runtime = runtime if runtime is not None else CompactorRuntime()
        self._require_alive = runtime.require_alive
        self._manifests = manifests
        self._compactions_store = compactions
        self._env = env
        self._options = options
        metrics = metrics if metrics is not None else Metrics()
        self._reporter = CoordinatorReporter(metrics)
        self._reporter.configured(options)
        self._job_log = JobLog(compactions.records, env.clock, metrics)
        self._jobs_ready = runtime.jobs_ready
        self._worker_id = runtime.worker_id
        self._view_sizes = runtime.view_sizes
        self._results_ready = runtime.results_ready
        self._view: CoordinatorState | None = None
        self._seen: dict[Ulid, ObservedHeartbeat] = {}
        self._looked_s: float | None = None
        self._cooldown_until_s: dict[SourceSet, float] = {}
        self.last_poll_s: float | None = None

    def reconfigure(self, options: CoordinatorOptions) -> None:
        """Apply another policy, capacity and heartbeat timeout from the next round on; active jobs go on."""
        self._options = replace(
            self._options,
            scheduler=options.scheduler,
            max_concurrent_compactions=options.max_concurrent_compactions,
            worker_heartbeat_timeout_s=options.worker_heartbeat_timeout_s,
        )
        self._reporter.configured(self._options)

    @property
    def view(self) -> CoordinatorState:
        """Both files and all jobs; only after ``start``."""
        assert self._view is not None, "start first"
        return self._view

    @property
    def manifest(self) -> FenceableManifest:
        """The manifest, under this coordinator's epoch."""
        return self.view.manifest

    @property
    def compactions(self) -> FenceableCompactions:
        """The compactions file, under this coordinator's epoch."""
        return self.view.compactions

    @property
    def local(self) -> Compactions:
        """The local state of all jobs."""
        return self.view.local

    async def start(self) -> None:
        """Claim the epoch, first in the manifest, then in the compactions, and validate inherited jobs.

        Raises:
            LatestRecordMissing: there is no database yet.
            FencedError: another coordinator started at the same time and claimed a higher epoch.
        """
        self._view, step = await acquire_leadership(
            self._manifests,
            self._compactions_store,
            self._on_merge,
            writer_epoch=self._options.writer_epoch,
            worker_id=self._worker_id,
        )
        self._reporter.leadership_acquired(self.manifest.epoch)
        self._report(step)
        await self._repair_duplicate_l0()

    async def release_leadership(self) -> None:
        """Give up the epoch after a clean stop, so that the next coordinator can start at once."""
        await release_leadership(self.manifest)

    async def run(self) -> None:
        """Run rounds until cancelled or fenced.

        Raises:
            FencedError: another coordinator has taken over; this one has stopped writing.
        """
        try:
            with self._compactions_store.on_other_commit(self.wake):  # an admin in this process submits or cancels
                await self._run()
        except FencedError as error:
            self._report_fenced(error)
            raise

    async def _run(self) -> None:
        clock = self._env.clock
        next_tick_s = clock.monotonic_s()
        called = False
        while True:
            now_s = clock.monotonic_s()
            if now_s >= next_tick_s:
                await self.run_round()
                next_tick_s = max(next_tick_s + self._options.poll_interval_s, clock.monotonic_s())
            elif called or self.view.has_active:
                await self.run_commit_round()
            wait_s = next_tick_s - clock.monotonic_s()
            if self.view.has_active:
                wait_s = min(wait_s, self._options.commit_compacted_interval_s)
            called = await self._results_ready.wait_for(max(wait_s, 0.0))

    async def run_until_idle(self) -> None:
        """Run rounds until no job is active and the policy proposes none.  Raises like ``run``."""
        try:
            while True:
                await self.run_round()
                if not self.view.has_active:
                    return
                await self._results_ready.wait_for(self._options.poll_interval_s)
        except FencedError as error:
            self._report_fenced(error)
            raise

    def wake(self) -> None:
        """Start the next round at once: another part of this process has changed the compactions."""
        self._results_ready.notify()

    async def run_round(self) -> None:
        """Run one round: refresh, reclaim jobs of silent workers, commit, admit, propose.

        Raises:
            FencedError: another coordinator has taken over.
            InvalidDbState: the database is being destroyed.
        """
        await refresh_state(self.view)
        await self._require_alive()
        now_s = self._env.clock.monotonic_s()
        self.last_poll_s = now_s
        await self._repair_duplicate_l0()
        if self._view_sizes is not None:
            await self._view_sizes.measure(self.manifest.value)
        await self._execute(
            plan_round(
                self.manifest.value,
                self.local,
                self._policy(),
                self._env.ids.ulid,
                seen=self._seen,
                now_s=now_s,
                timeout_s=self._options.worker_heartbeat_timeout_s,
            )
        )

    async def run_commit_round(self) -> None:
        """Between two rounds: commit results and admit submissions, if there are any.

        Raises:
            FencedError: another coordinator has taken over.
            InvalidDbState: the database is being destroyed.
        """
        if await refresh_state(self.view, wanted=self._needs_round):
            await self._repair_duplicate_l0()
            await self._execute(plan_commit_round(self.manifest.value, self.local, self._policy(), self._env.ids.ulid))
        else:
            self._reporter.observe(self.manifest.value, self.local)  # a worker may have claimed a job

    async def _repair_duplicate_l0(self) -> None:
        """Promote duplicate L0s of a union made by SlateDB, before any compaction of them is planned."""
        promoted = await repair_duplicate_l0(
            self.view, self._env, checkpoint_lifetime_s=self._options.checkpoint_lifetime_s
        )
        self._reporter.promoted(promoted)

    def _on_merge(self, merged: MergedState) -> None:
        now_s = self._env.clock.monotonic_s()
        self._reporter.merged(merged)
        self._cooldown_until_s = update_cooldown(
            self._cooldown_until_s,
            (*merged.cancelled, *merged.failed),
            now_s=now_s,
            cooldown_s=self._options.cancel_cooldown_s,
        )
        self._job_log.merged(merged, now_s)
        gap_s = now_s - self._looked_s if self._looked_s is not None else 0.0
        self._seen = observe_heartbeats(
            self._seen, merged.compactions, now_s, unwatched_s=max(0.0, gap_s - max_poll_gap_s(self._options))
        )
        self._looked_s = now_s

    def _needs_round(self, compactions: Compactions) -> bool:
        """Return whether a result is waiting, or a submission and a worker for it."""
        has_capacity = count_claimable(compactions) < self._options.max_concurrent_compactions
        waiting = (CompactionStatus.COMPACTED, *([CompactionStatus.SUBMITTED] if has_capacity else []))
        return any(with_status(compactions, status) for status in waiting)

    def _policy(self) -> Policy:
        scheduler = self._options.scheduler
        return Policy(
            scheduler=scheduler if self._view_sizes is None else MeasuredScheduler(scheduler, self._view_sizes.applied),
            capacity=self._options.max_concurrent_compactions,
            trivial_moves=self._options.enable_trivial_move,
            in_cooldown=self._cooldown_until_s.keys(),
        )

    async def _execute(self, step: PlanningStep) -> None:
        await write_both(
            self.view,
            step.manifest,
            step.compactions,
            self._env,
            checkpoint_lifetime_s=self._options.checkpoint_lifetime_s,
            reclaimed=step.reclaimed,
        )
        self._report(step)
        # The worker of this process counts attempts by the records: one that a job has killed must be there before.
        await self._job_log.flush()
        if step.scheduled or step.reclaimed:
            self._jobs_ready.notify()

    def _report_fenced(self, error: FencedError) -> None:
        """Report that another coordinator has taken over; one in a writer's process gives way, which is normal."""
        if self._options.writer_epoch is None:
            self._reporter.fenced(self.manifest.epoch, error)

    def _report(self, step: PlanningStep) -> None:
        self._reporter.decided(step, self.local, self._env.clock.now_ms())
        self._job_log.decided(step, heartbeat_timeout_s=self._options.worker_heartbeat_timeout_s)
        self._reporter.observe(self.manifest.value, self.local)
