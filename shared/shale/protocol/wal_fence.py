"""Fences the WAL: afterwards no older writer can append a file that is read.

A zero-byte file in the first free slot is enough, because a writer has one put in flight and must use that slot next.
Where a writer has several puts in flight, as many fences in consecutive slots are needed.  Whether a taken slot ends
this writer is decided by the manifest.  The epoch in the metadata of the slot, where stores keep metadata and the
writer has set it, is a second check.

Source: docs/reference/protocol.md 4.2, 4.13; SlateDB slatedb/src/db.rs (fence_writers).
"""

from collections.abc import Sequence
from functools import partial

from shale.concurrency.gather import gather
from shale.core.lazy_dataclass import dataclass
from shale.env import Env
from shale.errors import ONE_WRITER, FencedError
from shale.protocol.manifest_store import FenceableManifest
from shale.protocol.wal_store import WalStore, first_missing
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.telemetry.metrics import Metrics
from shale.types import WalId

log = get_logger("wal")


@dataclass(frozen=True, slots=True)
class WalFence:
    """The end of the older writers' files; those of the new writer follow.

    ``id``: the last fence.  ``count``: fences in consecutive slots, up to this one.  ``attempts``: slots that were
    tried.
    """

    id: WalId
    attempts: int
    count: int = 1

    @property
    def next_wal_id(self) -> WalId:
        """The first slot of the new writer."""
        return WalId(self.id + 1)

    @property
    def ids(self) -> range:
        """The slots of the fences."""
        return range(self.id - self.count + 1, self.id + 1)


@dataclass(slots=True)
class FenceRun:
    """The search for consecutive slots that take the fences of a new writer.

    As many fences as an older writer may have puts in flight are enough.  To write after the run, it must have begun
    a put for every slot of the run before, so one of these has ended; it found a fence, and the writer has stopped.

    Args:
        length: the number of consecutive fences.
        next_id: the first slot to try: the first missing one, so that the fences also fill all gaps.
        last_seen_id: the highest id in a listing; the run must end ``length`` slots after it or later.
    """

    length: int
    next_id: int
    last_seen_id: int
    fences: int = 0
    """Fences in consecutive slots right before ``next_id``."""

    @property
    def is_complete(self) -> bool:
        """Whether no older writer can write after the last fence any more."""
        return self.fences >= self.length and self.next_id > self.last_seen_id + self.length

    def slots(self) -> range:
        """Return the slots to try next, at the same time: the rest of the run."""
        return range(self.next_id, self.next_id + max(self.length - self.fences, 1))

    def record(self, taken: Sequence[bool]) -> None:
        """Count the fences in ``slots()``; a slot that another writer had taken begins the run anew."""
        for each in taken:
            self.fences = 0 if each else self.fences + 1
        self.next_id += len(taken)


async def fence_wal(
    wal: WalStore,
    manifest: FenceableManifest,
    probe_id: int,
    env: Env,
    metrics: Metrics | None = None,
) -> WalFence:
    """Put a fence into the first free slot at or above ``probe_id``, or a run of fences into a parallel WAL.

    Args:
        manifest: the manifest with the writer's epoch, just claimed.
        probe_id: one above the last file seen *before* the claim; a parallel WAL is listed instead.

    Raises:
        FencedError: a newer writer has claimed the epoch.
        ProtocolPanic: another writer has the same epoch.
    """
    started = env.clock.monotonic_s()
    if manifest.value.has_parallel_wal:
        fence = await _put_run(wal, manifest)
    else:
        fence = await _put_one(wal, manifest, await _probe_above_replay_start(wal, manifest, probe_id))
    assert fence.ids.start > manifest.value.replay_after_wal_id, "a fence below the start of replay would hide rows"
    if metrics is not None:
        metrics.histogram("slatedb_wal_fence_duration_seconds").observe(env.clock.monotonic_s() - started)
        metrics.counter("slatedb_wal_fence_retries_total").inc(fence.attempts - fence.count)
    log.info(Event.WAL_FENCE_WRITTEN, wal_id=fence.id, attempts=fence.attempts)
    return fence


async def _put_one(wal: WalStore, manifest: FenceableManifest, wal_id: int) -> WalFence:
    attempts = 1
    while not await wal.try_put_fence(wal_id, epoch=manifest.epoch):
        # If the epoch is still ours, an older writer won the slot; its rows are committed and will be replayed.
        await manifest.refresh()
        await _require_older(wal, manifest, wal_id)
        wal_id += 1
        attempts += 1
    return WalFence(WalId(wal_id), attempts)


async def _put_run(wal: WalStore, manifest: FenceableManifest) -> WalFence:
    """Fence a parallel WAL; afterwards it has no gap up to the last fence."""
    replayed_id = manifest.value.replay_after_wal_id
    listed = await wal.ids_after(replayed_id)
    length = manifest.value.max_parallel_writes
    run = FenceRun(length, first_missing(listed, replayed_id), listed[-1] if listed else replayed_id)
    attempts = 0
    while not run.is_complete:
        slots = run.slots()
        # The order in which these fences land does not matter: only the complete run counts.
        fenced = await gather([partial(wal.try_put_fence, wal_id, epoch=manifest.epoch) for wal_id in slots])
        run.record([not each for each in fenced])
        attempts += len(slots)
        if not all(fenced):
            await manifest.refresh()
            await _require_older(wal, manifest, slots[fenced.index(False)])
    return WalFence(WalId(run.next_id - 1), attempts, length)


async def _require_older(wal: WalStore, manifest: FenceableManifest, wal_id: int) -> None:
    """Check that the file in a taken slot is of an older writer, if it carries an epoch."""
    found = await wal.require_other_epoch(wal_id, manifest.epoch)
    if found is not None and found > manifest.epoch:
        raise FencedError(f"{wal.key(wal_id)} is a file of epoch {found}, ours is {manifest.epoch}; {ONE_WRITER}")


async def _probe_above_replay_start(wal: WalStore, manifest: FenceableManifest, probe_id: int) -> int:
    """Return ``probe_id``, or a later id if the old writer flushed between the probe and the claim."""
    if probe_id > manifest.value.replay_after_wal_id:
        return probe_id
    probe_id = await wal.last_seen_wal_id(manifest.value.replay_after_wal_id) + 1
    await manifest.refresh()
    assert probe_id > manifest.value.replay_after_wal_id, "only the owner of the epoch moves replay_after_wal_id"
    return probe_id
