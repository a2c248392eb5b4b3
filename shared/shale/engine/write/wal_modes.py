"""Chooses how a writer flushes its WAL and what counts as durable: in order, or in parallel."""

from shale.engine.wal.flusher import WalFlusher
from shale.engine.write.durability import DurabilityTracker
from shale.types import Manifest


def new_durability(manifest: Manifest, wal_ack: str, fence_id: int) -> DurabilityTracker:
    """Return the tracker of a writer whose WAL begins after the fence ``fence_id``."""
    if not manifest.has_parallel_wal or wal_ack == "contiguous":
        return DurabilityTracker(manifest.last_l0_seq, fence_id)
    from shale.engine.write.landed_durability import LandedDurability  # few databases need it

    return LandedDurability(manifest.last_l0_seq, fence_id)


def wal_flusher_class(manifest: Manifest) -> type[WalFlusher]:
    """Return the class that flushes the WAL of a database."""
    if not manifest.has_parallel_wal:
        return WalFlusher
    from shale.engine.wal.parallel_flusher import ParallelWalFlusher  # few databases need it

    return ParallelWalFlusher
