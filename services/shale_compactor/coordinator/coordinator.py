"""The coordinator: the one process that plans compactions, hands them out and commits their results.

It holds the compactor epoch in both kinds of files.  Compactions are read before the manifest and written after it,
always: a result that the compactions call finished is then contained in every manifest read after them.

Source: docs/protocol.md 6.1, 6.4, 6.6.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from shale.compaction.entries import count_using_capacity, retained, with_entries, with_status
from shale.compaction.specs import describe
from shale.compaction.validation import check_proposal
from shale.env import Env
from shale.errors import FencedError, InvalidCompaction, InvalidDbState, ObjectVersionExists, ProtocolPanic
from shale.protocol.compactions_store import COORDINATOR, CompactionsStore, FenceableCompactions
from shale.protocol.manifest_store import COMPACTOR, FenceableManifest, ManifestStore
from shale.protocol.transactional import Fenceable
from shale.protocol.versioned import Versioned
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.telemetry.metrics import Metrics
from shale.types import Compaction, Compactions, CompactionStatus, Ulid
from shale_compactor.coordinator.instruments import CoordinatorMetrics
from shale_compactor.coordinator.manifest_commit import commit_manifest
from shale_compactor.coordinator.options import CoordinatorOptions
from shale_compactor.nudge import Nudge
from shale_compactor.states.commit import admit_submitted, commit_compacted
from shale_compactor.states.merge_state import merge_remote
from shale_compactor.states.reclaim import Sighting, observe, plan_reclaim
from shale_compactor.states.startup import plan_startup
from shale_compactor.states.step import Rejected, Step

if TYPE_CHECKING:
    from collections.abc import Mapping

log = get_logger("compactor")


class Coordinator:
    """Use ``start`` once, then ``run``; or ``tick`` and ``commit_tick`` by hand.

    ``local`` holds more than the stored compactions: entries that finished here stay until a write that knows about
    it has succeeded, so that an older copy cannot bring them back.
    """

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
        self._metrics = CoordinatorMetrics(metrics if metrics is not None else Metrics())
        self._jobs_ready = jobs_ready if jobs_ready is not None else Nudge()
        self._results_ready = results_ready if results_ready is not None else Nudge()
        self._manifest: FenceableManifest | None = None
        self._compactions: FenceableCompactions | None = None
        self._local = Compactions()
        self._seen: Mapping[Ulid, Sighting] = {}
        self.last_poll_s: float | None = None

    @property
    def manifest(self) -> FenceableManifest:
        """The manifest under our epoch; ``start`` has claimed it."""
        assert self._manifest is not None, "start first"
        return self._manifest

    @property
    def compactions(self) -> FenceableCompactions:
        """The compactions file under our epoch."""
        assert self._compactions is not None, "start first"
        return self._compactions

    @property
    def local(self) -> Compactions:
        """What this process knows about all jobs."""
        return self._local

    async def start(self) -> None:
        """Take the epoch, first in the manifest, then in the compactions, and take stock of inherited jobs.

        Raises:
            LatestRecordMissing: there is no database yet.
            FencedError: another coordinator started at the same time and is ahead.
        """
        self._manifest = await Fenceable.claim(await self._manifests.load(), COMPACTOR)
        epoch = self._manifest.epoch
        stored = await self._compactions_store.load_or_create()
        self._compactions = await Fenceable.claim_epoch(stored, COORDINATOR, epoch)
        step = await self._take_stock()
        stored_epochs = (self.manifest.value.compactor_epoch, self.compactions.value.compactor_epoch)
        if stored_epochs != (epoch, epoch):
            raise ProtocolPanic("the epochs of manifest and compactions differ", ours=epoch, stored=stored_epochs)
        self._metrics.epoch(epoch)
        self._metrics.observe(self.manifest.value, self._local)
        self._report(step)

    async def run(self) -> None:
        """Tick until cancelled or fenced.

        Raises:
            FencedError: another coordinator has taken over; this one has stopped writing.
        """
        try:
            await self._run()
        except FencedError as error:
            self._metrics.fenced()
            log.warning(Event.COMPACTOR_FENCED, epoch=self.manifest.epoch, error=error)
            raise

    async def _run(self) -> None:
        clock = self._env.clock
        next_tick_s = clock.monotonic_s()
        while True:
            now_s = clock.monotonic_s()
            if now_s >= next_tick_s:
                await self.tick()
                next_tick_s = max(next_tick_s + self._options.poll_interval_s, clock.monotonic_s())
            elif self._has_active:
                await self.commit_tick()
            wait_s = next_tick_s - clock.monotonic_s()
            if self._has_active:
                wait_s = min(wait_s, self._options.commit_compacted_interval_s)
            await self._results_ready.wait(max(wait_s, 0.0))

    async def tick(self) -> None:
        """One round: refresh, reclaim, commit, schedule, validate.

        Raises:
            FencedError: another coordinator has taken over.
        """
        await self._refresh()
        await self._reclaim()
        await self._carry_out(commit_compacted(self.manifest.value, self._local))
        await self._schedule()
        step = admit_submitted(self.manifest.value, self._local, trivial_moves=self._options.enable_trivial_move)
        await self._carry_out(step)
        self._metrics.observe(self.manifest.value, self._local)

    async def commit_tick(self) -> None:
        """Between two rounds: commit what workers have finished, and plan on if that made room.

        Raises:
            FencedError: another coordinator has taken over.
        """
        await self.compactions.refresh()
        self._merge()
        if not with_status(self._local, CompactionStatus.COMPACTED):
            return
        # The results are judged by the newest manifest, which is read after the compactions.
        await self.manifest.refresh()
        await self._carry_out(commit_compacted(self.manifest.value, self._local))
        await self._schedule()
        await self._carry_out(
            admit_submitted(self.manifest.value, self._local, trivial_moves=self._options.enable_trivial_move)
        )
        self._metrics.observe(self.manifest.value, self._local)

    @property
    def _has_active(self) -> bool:
        return any(entry.is_active for entry in self._local.entries)

    async def _take_stock(self) -> Step:
        """Settle what the last coordinator left, in one write (docs/protocol.md 6.4, step 5)."""
        conflicts = 0
        while True:
            base = self.compactions.prepare_dirty()
            step = plan_startup(self.manifest.value, base.value)
            self._local = step.compactions
            try:
                await self._store_local(base)
            except ObjectVersionExists:
                conflicts += 1
                await self.compactions.recover(conflicts)
            else:
                return step

    async def _refresh(self) -> None:
        await self.compactions.refresh()
        self._merge()
        await self.manifest.refresh()
        if not self.manifest.value.initialized:
            raise InvalidDbState("the database is being destroyed")
        if self._require_alive is not None:
            await self._require_alive()
        self.last_poll_s = self._env.clock.monotonic_s()

    def _merge(self) -> None:
        merged = merge_remote(self._local, self.compactions.value)
        for entry in merged.ignored:
            log.error(Event.COMPACTION_REMOTE_IGNORED, compaction_id=str(entry.id), status=entry.status.name.lower())
        self._local = merged.compactions

    async def _reclaim(self) -> None:
        now_s = self._env.clock.monotonic_s()
        self._seen = observe(self._seen, self._local, now_s)
        plan = plan_reclaim(
            self.manifest.value,
            self._local,
            self._seen,
            now_s=now_s,
            timeout_s=self._options.worker_heartbeat_timeout_s,
        )
        if not plan.reclaimed and not plan.rejected:
            return
        self._local = plan.compactions
        await self._write_compactions()
        for entry in plan.reclaimed:
            self._metrics.reclaimed()
            worker = entry.worker.worker_id if entry.worker is not None else None
            _log(Event.COMPACTION_RECLAIMED, entry, worker=worker)
        self._report_rejected(plan.rejected)
        self._jobs_ready.call()

    async def _schedule(self) -> None:
        """Propose, up to the free capacity, and store the proposals as Submitted."""
        proposed: list[Compaction] = []
        room = self._options.max_concurrent_compactions - count_using_capacity(self._local)
        if room <= 0:
            return
        for spec in self._options.scheduler.plan(self.manifest.value, self._local)[:room]:
            try:
                check_proposal(self._local, spec)
            except InvalidCompaction:
                continue
            entry = Compaction(id=self._env.ids.ulid(), spec=spec)
            proposed.append(entry)
            self._local = with_entries(self._local, (entry,))
        if proposed:
            await self._write_compactions()
            for entry in proposed:
                _log(Event.COMPACTION_SUBMITTED, entry)

    async def _carry_out(self, step: Step) -> None:
        """Write what a step changed: the manifest first."""
        if step.compactions is self._local:
            return
        self._local = step.compactions
        if step.manifest is not self.manifest.value:
            lifetime_s = self._options.checkpoint_lifetime_s
            await commit_manifest(self.manifest, step.manifest, self._env, lifetime_s=lifetime_s)
        await self._write_compactions()
        self._report(step)
        if step.scheduled:
            self._jobs_ready.call()

    async def _write_compactions(self) -> None:
        """Store the local state, after adopting whatever workers and admins have stored meanwhile."""
        conflicts = 0
        while True:
            try:
                await self._store_local(self.compactions.prepare_dirty())
            except ObjectVersionExists:
                conflicts += 1
                await self.compactions.recover(conflicts)
                self._merge()
            else:
                return

    async def _store_local(self, base: Versioned[Compactions]) -> None:
        wanted = retained(replace(self._local, compactor_epoch=self.compactions.epoch))
        if wanted != base.value:
            await self.compactions.update(Versioned(base.id, wanted))
        # Everybody who writes from here on builds on a version without the forgotten entries.
        self._local = wanted

    def _report(self, step: Step) -> None:
        now_s = self._env.clock.now_ms() / 1000
        for entry in step.committed:
            self._metrics.committed(now_s)
            _log(Event.COMPACTION_COMMITTED, entry)
        self._report_rejected(step.rejected)

    def _report_rejected(self, rejected: tuple[Rejected, ...]) -> None:
        for rejection in rejected:
            self._metrics.rejected()
            log.error(
                Event.COMPACTION_REJECTED,
                compaction_id=str(rejection.entry.id),
                spec=describe(rejection.entry.spec),
                rule=rejection.rule,
                error=rejection.message,
            )


def _log(event: Event, entry: Compaction, **fields: object) -> None:
    log.info(event, compaction_id=str(entry.id), spec=describe(entry.spec), **fields)
