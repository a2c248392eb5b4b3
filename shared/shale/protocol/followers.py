"""Checkpoints of those who follow the WAL: how far the collector has to keep files that nobody replays any more.

A checkpoint protects the WAL files that replaying its own manifest needs, so none from that manifest's
``next_wal_sst_id`` on; and once the latest manifest has moved its replay point, only their age does.  A checkpoint
whose name begins with ``changes:`` is therefore taken by our collector for more: every file behind its manifest's
replay point stays.  SlateDB's collector does not know that and keeps what any checkpoint keeps.

Source: docs/protocol.md 8.5 [ours].
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from shale.protocol.checkpoints import expire_s_after
from shale.types import Checkpoint, Manifest, ManifestId

FOLLOWER_PREFIX = "changes:"


@dataclass(frozen=True, slots=True)
class WalBounds:
    """What a manifest knows of the WAL: replay begins behind the first, the second was not yet written."""

    replay_after_wal_id: int
    next_wal_sst_id: int

    @classmethod
    def of(cls, manifest: Manifest) -> "WalBounds":
        """Those of a manifest."""
        return cls(manifest.replay_after_wal_id, manifest.next_wal_sst_id)


def follower_name(name: str) -> str:
    """What the checkpoint of a follower is called."""
    return FOLLOWER_PREFIX + name


def followed_after(latest: Manifest, pinned: Mapping[int, Manifest]) -> int | None:
    """The id above which followers need every file; ``None`` if nobody follows.

    Args:
        latest: whose checkpoints count.
        pinned: the manifests that they name, by id.
    """
    bounds = [
        int(pinned[checkpoint.manifest_id].replay_after_wal_id)
        for checkpoint in latest.checkpoints
        if (checkpoint.name or "").startswith(FOLLOWER_PREFIX)
    ]
    return min(bounds, default=None)


def move_follower(
    manifest: Manifest,
    version: int,
    *,
    id: UUID,  # noqa: A002 - the field's name
    name: str,
    read_wal_id: int,
    pinned: WalBounds | None,
    now_ms: int,
    lifetime_ms: int,
) -> Manifest | None:
    """Let the checkpoint of a follower keep what it has not read yet; ``None`` if it does so already.

    The checkpoint moves to the version being written as long as that version's replay point is not beyond what was
    read; otherwise the old one, which keeps more, is renewed when half of its lifetime is over.

    Args:
        version: the id under which the result is going to be written.
        id: of the new checkpoint, if there will be one.
        name: the follower's own, without prefix.
        read_wal_id: every file up to it has been read.
        pinned: what the checkpoint was last seen to keep.
    """
    full_name = follower_name(name)
    mine = [entry for entry in manifest.checkpoints if entry.name == full_name and not entry.is_expired(now_ms)]
    if any(entry.id == id for entry in mine):
        return None
    is_behind = manifest.replay_after_wal_id > read_wal_id
    if mine and (is_behind or WalBounds.of(manifest) == pinned):
        if all(entry.expire_s == 0 or entry.expire_s * 1000 - now_ms > lifetime_ms // 2 for entry in mine):
            return None
        expire_s = expire_s_after(now_ms, lifetime_ms)
        kept = tuple(replace(entry, expire_s=expire_s) if entry in mine else entry for entry in manifest.checkpoints)
        return replace(manifest, checkpoints=kept)
    fresh = Checkpoint(
        id=id,
        manifest_id=ManifestId(version),
        expire_s=expire_s_after(now_ms, lifetime_ms),
        create_s=now_ms // 1000,
        name=full_name,
    )
    others = tuple(entry for entry in manifest.checkpoints if entry.name != full_name)
    return replace(manifest, checkpoints=(*others, fresh))
