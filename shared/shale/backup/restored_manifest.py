"""The manifests of a restored database.  Pure."""

from dataclasses import replace
from uuid import UUID

from shale.backup.wal_end import WalEnd
from shale.protocol.checkpoints import expire_s_after
from shale.protocol.versioned import Versioned
from shale.types import CasMode, Checkpoint, Epoch, ExclusiveModes, Manifest, ManifestId, WalId

UNDO_LIFETIME_MS = 7 * 24 * 3600 * 1000
"""How long the state before a restore in place is kept."""


def restored(manifest: Manifest, end: WalEnd, cas: CasMode) -> Manifest:
    """Return the half-built manifest of a restored database, which owns all its SSTs and has no checkpoints.

    Args:
        manifest: that of the backup.
        end: the WAL files that are restored.
        cas: how the store of the restored database creates files.
    """
    modes = replace(manifest.exclusive if manifest.exclusive is not None else ExclusiveModes(), cas=cas)
    return replace(
        manifest,
        initialized=False,
        checkpoints=(),
        external_dbs=(),
        next_wal_sst_id=WalId(manifest.replay_after_wal_id + 1 + end.count),
        exclusive=None if modes == ExclusiveModes() else modes,
    )


def in_place(found: Versioned[Manifest], wanted: Manifest, undo_id: UUID, undo_name: str, now_ms: int) -> Manifest:
    """Return the half-built version that replaces a database.

    Its checkpoints stay, so its readers and clones keep what they use, and a new one keeps the state before, unless
    that is half built by an interrupted restore.  Parents stay without SSTs, so that the gc releases their checkpoints
    once no version reads them.  Both epochs rise above those of the database.  The WAL range is that of the database
    until the restored files are there.

    Args:
        found: the newest version of the database.
        wanted: see ``restored``.
        undo_id, undo_name: of the new checkpoint.
        now_ms: milliseconds since 1970.
    """
    base = found.value
    undo = Checkpoint(
        id=undo_id,
        manifest_id=ManifestId(found.id),
        expire_s=expire_s_after(now_ms, UNDO_LIFETIME_MS),
        create_s=now_ms // 1000,
        name=undo_name,
    )
    kept = tuple(each for each in base.checkpoints if each.writer_epoch is None)
    return replace(
        wanted,
        writer_epoch=Epoch(max(base.writer_epoch, wanted.writer_epoch) + 1),
        compactor_epoch=Epoch(max(base.compactor_epoch, wanted.compactor_epoch) + 1),
        replay_after_wal_id=base.replay_after_wal_id,
        next_wal_sst_id=base.next_wal_sst_id,
        checkpoints=(*kept, undo) if base.initialized else kept,
        external_dbs=tuple(replace(each, sst_ids=()) for each in base.external_dbs if each.final_checkpoint_id),
    )


def is_same_state(found: Manifest, wanted: Manifest) -> bool:
    """Return whether a manifest has the SSTs of another one: an earlier attempt of the same restore wrote it."""
    return (found.tree, found.segments, found.last_l0_seq) == (wanted.tree, wanted.segments, wanted.last_l0_seq) and (
        not any(each.sst_ids for each in found.external_dbs)
    )
