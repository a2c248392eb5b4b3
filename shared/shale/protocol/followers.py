"""Checkpoints of WAL followers: they keep WAL files for change feeds after no replay needs the files.

An ordinary checkpoint keeps the WAL files that a replay of its manifest reads.  It keeps no file from that manifest's
``next_wal_sst_id`` on: once the replay point of the latest manifest has passed such a file, only its age protects it.
For a checkpoint whose name begins with ``changes:``, Shale's collector keeps every file after the replay point of its
manifest.  SlateDB's collector treats it as an ordinary checkpoint.

Source: docs/reference/protocol.md 8.5 [ours].
"""

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

from shale.core.lazy_dataclass import dataclass
from shale.protocol.checkpoints import expire_s_after
from shale.protocol.versioned import Versioned
from shale.types import Checkpoint, Manifest, ManifestId

FOLLOWER_PREFIX = "changes:"


@dataclass(frozen=True, slots=True)
class WalBounds:
    """The WAL ids in a manifest: replay begins after the first; the second was not written yet."""

    replay_after_wal_id: int
    next_wal_sst_id: int

    @classmethod
    def of(cls, manifest: Manifest) -> "WalBounds":
        """Return the bounds of a manifest."""
        return cls(manifest.replay_after_wal_id, manifest.next_wal_sst_id)


def follower_name(name: str) -> str:
    """Return the name of the checkpoint of a follower."""
    return FOLLOWER_PREFIX + name


def oldest_followed_wal_id(latest: Manifest, pinned: Mapping[int, Manifest]) -> int | None:
    """Return the id above which followers need every file; ``None`` if there are no followers.

    Args:
        latest: the manifest with the checkpoints.
        pinned: the manifests that the checkpoints name, by id.
    """
    bounds = [
        int(pinned[checkpoint.manifest_id].replay_after_wal_id)
        for checkpoint in latest.checkpoints
        if (checkpoint.name or "").startswith(FOLLOWER_PREFIX)
    ]
    return min(bounds, default=None)


def advance_follower(
    current: Versioned[Manifest],
    *,
    id: UUID,  # noqa: A002 - the field's name
    name: str,
    read_wal_id: int,
    pinned: WalBounds | None,
    now_ms: int,
    lifetime_ms: int,
) -> Manifest | None:
    """Move or renew the checkpoint of a follower to keep what it has not read; ``None`` if nothing needs to change.

    The checkpoint moves to the version that the result becomes, unless the replay point of that version is beyond the
    files that were read.  Then the old checkpoint, which keeps more files, is renewed when half of its lifetime is
    over.

    Args:
        current: the newest manifest.
        id: of the new checkpoint, if there will be one.
        name: the follower's own, without prefix.
        read_wal_id: the follower has read every file up to it.
        pinned: the bounds of the manifest that the checkpoint was last seen to pin.
    """
    manifest = current.value
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
        manifest_id=ManifestId(current.id + 1),
        expire_s=expire_s_after(now_ms, lifetime_ms),
        create_s=now_ms // 1000,
        name=full_name,
    )
    others = tuple(entry for entry in manifest.checkpoints if entry.name != full_name)
    return replace(manifest, checkpoints=(*others, fresh))
