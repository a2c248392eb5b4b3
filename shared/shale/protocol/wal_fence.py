"""Fences the WAL: afterwards no older writer can append a file that is read.

A zero-byte file in the first free slot is enough, because a writer has one put in flight and must use that slot next.
Whether a taken slot ends this writer is decided by the manifest.  The epoch in the metadata of the slot, where stores
keep metadata and the writer has set it, is a second check.

Source: docs/reference/protocol.md 4.2; SlateDB slatedb/src/db.rs (fence_writers).
"""

from shale.core.lazy_dataclass import dataclass
from shale.env import Env
from shale.errors import FencedError
from shale.protocol.manifest_store import FenceableManifest
from shale.protocol.wal_store import WalStore
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.telemetry.metrics import Metrics
from shale.types import WalId

log = get_logger("wal")


@dataclass(frozen=True, slots=True)
class WalFence:
    """The end of the older writers' files; those of the new writer follow."""

    id: WalId
    attempts: int

    @property
    def next_wal_id(self) -> WalId:
        """The first slot of the new writer."""
        return WalId(self.id + 1)


async def fence_wal(
    wal: WalStore,
    manifest: FenceableManifest,
    probe_id: int,
    env: Env,
    metrics: Metrics | None = None,
) -> WalFence:
    """Put a fence into the first free slot at or above ``probe_id``.

    Args:
        manifest: the manifest with the writer's epoch, just claimed.
        probe_id: one above the last file seen *before* the claim.

    Raises:
        FencedError: a newer writer has claimed the epoch.
        ProtocolPanic: another writer has the same epoch.
    """
    started = env.clock.monotonic_s()
    wal_id = await _probe_above_replay_start(wal, manifest, probe_id)
    attempts = 1
    while not await wal.try_put_fence(wal_id, epoch=manifest.epoch):
        # If the epoch is still ours, an older writer won the slot; its rows are committed and will be replayed.
        await manifest.refresh()
        found = await wal.require_other_epoch(wal_id, manifest.epoch)
        if found is not None and found > manifest.epoch:
            raise FencedError(f"{wal.key(wal_id)} is a file of epoch {found}, ours is {manifest.epoch}")
        wal_id += 1
        attempts += 1
    assert wal_id > manifest.value.replay_after_wal_id, "a fence below the start of replay would hide rows"
    if metrics is not None:
        metrics.histogram("slatedb_wal_fence_duration_seconds").observe(env.clock.monotonic_s() - started)
        metrics.counter("slatedb_wal_fence_retries_total").inc(attempts - 1)
    log.info(Event.WAL_FENCE_WRITTEN, wal_id=wal_id, attempts=attempts)
    return WalFence(WalId(wal_id), attempts)


async def _probe_above_replay_start(wal: WalStore, manifest: FenceableManifest, probe_id: int) -> int:
    """Return ``probe_id``, or a later id if the old writer flushed between the probe and the claim."""
    if probe_id > manifest.value.replay_after_wal_id:
        return probe_id
    probe_id = await wal.last_seen_wal_id(manifest.value.replay_after_wal_id) + 1
    await manifest.refresh()
    assert probe_id > manifest.value.replay_after_wal_id, "only the owner of the epoch moves replay_after_wal_id"
    return probe_id
