"""The checkpoints of a managed reader: replaced when the database changes, renewed while reads need them.

The functions return changed manifests; ``Follower`` commits them (docs/reference/protocol.md 5.3, 9).
"""

from collections.abc import Iterable
from uuid import UUID

from shale.engine.read.pins import Pin
from shale.protocol.checkpoints import add_checkpoint, delete_checkpoints, refresh_checkpoint
from shale.types import Manifest


def replace_checkpoints(
    manifest: Manifest,
    version: int,
    *,
    new_id: UUID,
    kept: Iterable[Pin],
    dropped: Iterable[Pin],
    now_ms: int,
    lifetime_ms: int | None,
) -> Manifest | None:
    """Drop checkpoints, renew those that have readers, and add one of the state being written.

    Args:
        manifest: the newest manifest.
        version: the id of the result.
        new_id: id of the new checkpoint; if the manifest lists it, an earlier attempt succeeded.
        kept: states with readers; one that is no longer listed stays lost.
        dropped: states without readers.
        now_ms: the current time.
        lifetime_ms: lifetime of the new checkpoint and of renewed ones; ``None`` never ends.

    Raises:
        InvalidDbState: the database is being destroyed.
    """
    if manifest.checkpoint(new_id) is not None:
        return None
    changed = delete_checkpoints(manifest, _ids(dropped)) or manifest
    changed = _renewed(changed, _ids(kept), now_ms, lifetime_ms)
    return add_checkpoint(changed, version, id=new_id, now_ms=now_ms, lifetime_ms=lifetime_ms)


def renew_checkpoints(
    manifest: Manifest, *, kept: Iterable[Pin], dropped: Iterable[Pin], now_ms: int, lifetime_ms: int | None
) -> Manifest | None:
    """Drop the checkpoints without readers and renew the others; return ``None`` if nothing changes."""
    changed = delete_checkpoints(manifest, _ids(dropped)) or manifest
    changed = _renewed(changed, _ids(kept), now_ms, lifetime_ms)
    return None if changed is manifest else changed


def update_expiry(manifest: Manifest, pins: Iterable[Pin]) -> list[Pin]:
    """Copy the expiry times of the manifest into the pins; return the pins it does not list."""
    lost = []
    for pin in pins:
        entry = manifest.checkpoint(pin.checkpoint_id) if pin.checkpoint_id is not None else None
        if entry is None:
            lost.append(pin)
        else:
            pin.expire_s = entry.expire_s
    return lost


def needs_renewal(pins: Iterable[Pin], now_ms: int, lifetime_ms: int | None) -> bool:
    """Return whether one of them has less than half of its lifetime left."""
    return lifetime_ms is not None and any(now_ms > pin.expire_s * 1000 - lifetime_ms // 2 for pin in pins)


def _ids(pins: Iterable[Pin]) -> list[UUID]:
    return [pin.checkpoint_id for pin in pins if pin.checkpoint_id is not None]


def _renewed(manifest: Manifest, ids: Iterable[UUID], now_ms: int, lifetime_ms: int | None) -> Manifest:
    for checkpoint_id in ids:
        if manifest.checkpoint(checkpoint_id) is not None:
            manifest = refresh_checkpoint(manifest, checkpoint_id, now_ms=now_ms, lifetime_ms=lifetime_ms) or manifest
    return manifest
