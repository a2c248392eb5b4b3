"""The coordinator: the one process that plans compactions, hands them out and commits their results.

It holds the compactor epoch in both kinds of files.  A round looks (``state_view``), decides (``states.round``),
stores (``writing``) and tells (``reporting``); this is the loop around it.

Source: docs/protocol.md 6.1, 6.4, 6.6.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from shale.compaction.entries import with_status
from shale.env import Env
from shale.errors import FencedError
from shale.protocol.compactions_store import CompactionsStore, FenceableCompactions
from shale.protocol.manifest_store import FenceableManifest, ManifestStore
from shale.telemetry.metrics import Metrics
from shale.types import Compactions, CompactionStatus, Ulid
from shale_compactor.coordinator.healing import heal
from shale_compactor.coordinator.options import CoordinatorOptions, longest_gap_s
from shale_compactor.coordinator.reporting import Reporter
from shale_compactor.coordinator.state_view import StateView, refresh_view
from shale_compactor.coordinator.succession import resign, take_office
from shale_compactor.coordinator.writing import write_both
from shale_compactor.nudge import Nudge
from shale_compactor.states.merge_state import MergedState
from shale_compactor.states.reclaim import Sighting, observe
from shale_compactor.states.round import Policy, plan_round, plan_tick
from shale_compactor.states.step import Step
from shale_compactor.states.withheld import Sources, withhold


class Coordinator:
    """Use ``start`` once, then ``run``, then ``resign``; or ``tick`` and ``commit_tick`` by hand."""

    def __init__(
        self,
        manifests: ManifestStore,
        compactions: CompactionsStore,
        env: Env,
        options: CoordinatorOptions,
        metrics: Metrics | None = None,
        *,
        require_alive: Callable[[], Awaitable[None]] | None = None,
        jobs_ready: Nudge | None = None,
        results_ready: Nudge | None = None,
    ) -> None:
        """``require_alive`` raises once the database is marked as destroyed; it is asked once per round."""
        self._require_alive = require_alive
        self._manifests = manifests
        self._compactions_store = compactions
        self._env = env
        self._options = options
        self._reporter = Reporter(metrics if metrics is not None else Metrics())
        self._jobs_ready = jobs_ready if jobs_ready is not None else Nudge()
        self._results_ready = results_ready if results_ready is not None else Nudge()
        self._view: StateView | None = None
        self._seen: Mapping[Ulid, Sighting] = {}
        self._looked_s: float | None = None
        self._withheld_until_s: Mapping[Sources, float] = {}
        self.last_poll_s: float | None = None

    def reconfigure(self, options: CoordinatorOptions) -> None:
        """From the next round on, go by another policy, capacity and timeout of heartbeats; active jobs go on."""
        self._options = replace(
            self._options,
            scheduler=options.scheduler,
            max_concurrent_compactions=options.max_concurrent_compactions,
            worker_heartbeat_timeout_s=options.worker_heartbeat_timeout_s,
        )

    @property
    def view(self) -> StateView:
        """Both files and all jobs; ``start`` has taken the epoch."""
        assert self._view is not None, "start first"
        return self._view

    @property
    def manifest(self) -> FenceableManifest:
        """The manifest under our epoch."""
        return self.view.manifest

    @property
    def compactions(self) -> FenceableCompactions:
        """The compactions file under our epoch."""
        return self.view.compactions

    @property
    def local(self) -> Compactions:
        """What this process knows about all jobs."""
        return self.view.local

    async def start(self) -> None:
        """Take the epoch, first in the manifest, then in the compactions, and take stock of inherited jobs.

        Raises:
            LatestRecordMissing: there is no database yet.
            FencedError: another coordinator started at the same time and is ahead.
        """
        self._view, step = await take_office(self._manifests, self._compactions_store, self._on_merge)
        self._reporter.took_office(self.manifest.epoch)
        self._tell(step)
        await self._heal()

    async def resign(self) -> None:
        """Give the epoch up after a clean stop, so that the next coordinator may start at once."""
        await resign(self.manifest)

    async def run(self) -> None:
        """Tick until cancelled or fenced.

        Raises:
            FencedError: another coordinator has taken over; this one has stopped writing.
        """
        try:
            await self._run()
        except FencedError as error:
            self._reporter.fenced(self.manifest.epoch, error)
            raise

    async def _run(self) -> None:
        clock = self._env.clock
        next_tick_s = clock.monotonic_s()
        called = False
        while True:
            now_s = clock.monotonic_s()
            if now_s >= next_tick_s:
                await self.tick()
                next_tick_s = max(next_tick_s + self._options.poll_interval_s, clock.monotonic_s())
            elif called or self.view.has_active:
                await self.commit_tick()
            wait_s = next_tick_s - clock.monotonic_s()
            if self.view.has_active:
                wait_s = min(wait_s, self._options.commit_compacted_interval_s)
            called = await self._results_ready.wait(max(wait_s, 0.0))

    def look(self) -> None:
        """Look at the files at once: somebody in this process has changed them."""
        self._results_ready.call()

    async def tick(self) -> None:
        """One round: look, take back what silent workers hold, commit, admit, propose.

        Raises:
            FencedError: another coordinator has taken over.
            InvalidDbState: the database is being destroyed.
        """
        await refresh_view(self.view)
        if self._require_alive is not None:
            await self._require_alive()
        now_s = self._env.clock.monotonic_s()
        self.last_poll_s = now_s
        await self._heal()
        await self._carry_out(
            plan_tick(
                self.manifest.value,
                self.local,
                self._policy(),
                self._env.ids.ulid,
                seen=self._seen,
                now_s=now_s,
                timeout_s=self._options.worker_heartbeat_timeout_s,
            )
        )

    async def commit_tick(self) -> None:
        """Between two rounds: settle what workers have finished and admins have submitted, and plan on.

        Raises:
            FencedError: another coordinator has taken over.
            InvalidDbState: the database is being destroyed.
        """
        if await refresh_view(self.view, wanted=_needs_a_round):
            await self._heal()
            await self._carry_out(plan_round(self.manifest.value, self.local, self._policy(), self._env.ids.ulid))

    async def _heal(self) -> None:
        """Lift L0s that a union of SlateDB lists twice, before anything is decided about them."""
        lifted = await heal(self.view, self._env, checkpoint_lifetime_s=self._options.checkpoint_lifetime_s)
        self._reporter.lifted(lifted)

    def _on_merge(self, merged: MergedState) -> None:
        now_s = self._env.clock.monotonic_s()
        self._reporter.merged(merged)
        self._withheld_until_s = withhold(
            self._withheld_until_s, merged.cancelled, now_s=now_s, hold_s=self._options.cancelled_hold_s
        )
        gap_s = now_s - self._looked_s if self._looked_s is not None else 0.0
        self._seen = observe(
            self._seen, merged.compactions, now_s, unwatched_s=max(0.0, gap_s - longest_gap_s(self._options))
        )
        self._looked_s = now_s

    def _policy(self) -> Policy:
        return Policy(
            scheduler=self._options.scheduler,
            capacity=self._options.max_concurrent_compactions,
            trivial_moves=self._options.enable_trivial_move,
            withheld=self._withheld_until_s.keys(),
        )

    async def _carry_out(self, step: Step) -> None:
        await write_both(
            self.view,
            step.manifest,
            step.compactions,
            self._env,
            checkpoint_lifetime_s=self._options.checkpoint_lifetime_s,
            reclaimed=step.reclaimed,
        )
        self._tell(step)

    def _tell(self, step: Step) -> None:
        self._reporter.decided(step, self.local, self._env.clock.now_ms())
        self._reporter.observe(self.manifest.value, self.local)
        if step.scheduled or step.reclaimed:
            self._jobs_ready.call()


def _needs_a_round(compactions: Compactions) -> bool:
    """Whether something waits that only a coordinator can settle."""
    return any(with_status(compactions, status) for status in (CompactionStatus.COMPACTED, CompactionStatus.SUBMITTED))
