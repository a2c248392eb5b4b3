"""Decides whether the last writer of a database closed it cleanly, for callers that must not fence a live writer.

An idle writer writes nothing, so silence proves nothing.  A clean close does: the last version of a writer changes
nothing but the end of the WAL and the replay point, and removes the writer's checkpoint.  Until a later writer claims,
other processes only add checkpoints and sorted runs.

No other version looks like that on purpose.  After a lost answer, Shale does not repeat a version (``Stored.apply``),
but SlateDB does, unless the store keeps the put's id as metadata.  Without metadata the check therefore refuses.

Source: docs/reference/protocol.md 4.11.
"""

from collections.abc import AsyncIterator
from dataclasses import replace

from shale.errors import InvalidDbState
from shale.protocol.manifest_store import StoredManifest
from shale.types import Manifest, WalId
from shale.types.writer_sign import writer_status

_CURE = "stop the writer, or fence it explicitly"
_VERSIONS_MAX = 16
"""Versions that are read to answer whether the last writer seems to have closed the database."""


async def require_clean_close(stored: StoredManifest, last_wal_id: WalId) -> None:
    """Require that no writer can be alive: there never was one, or the last one closed cleanly.

    Args:
        stored: the newest manifest.
        last_wal_id: the id of the newest WAL file.

    Raises:
        InvalidDbState: a writer is running or may be running; the message says why.
    """
    newest = stored.value
    if newest.writer_epoch == 0:
        return
    if last_wal_id >= newest.next_wal_sst_id:
        raise InvalidDbState(
            f"writer epoch {newest.writer_epoch} has not closed the database: the manifest does not know "
            f"WAL file {last_wal_id}; {_CURE}"
        )
    identity = writer_status(newest, now_ms=0).identity
    if identity is not None:
        raise InvalidDbState(
            f"writer epoch {newest.writer_epoch} has not closed the database: its checkpoint, "
            f"made on host {identity.host or 'unknown'}, is still there; {_CURE}"
        )
    async for version, older, newer in _steps(stored):
        if is_clean_close(older, newer):
            if await stored.store.may_be_duplicate(version):
                raise InvalidDbState(
                    f"whether writer epoch {newest.writer_epoch} has closed the database cannot be known: the store "
                    f"keeps no metadata, so version {version} may only repeat the one before it; {_CURE}"
                )
            return
        if not _is_by_others(older, newer):
            raise InvalidDbState(f"writer epoch {newest.writer_epoch} has not closed the database; {_CURE}")
    raise InvalidDbState(
        f"whether writer epoch {newest.writer_epoch} has closed the database is not known any more: "
        f"the versions that would tell were collected; {_CURE}"
    )


async def was_closed(stored: StoredManifest) -> bool | None:
    """Return whether the last step of the last writer looks like a clean close.

    It is no proof, see ``require_clean_close``.  ``None``: the newest versions do not tell.
    """
    seen = 0
    async for _, older, newer in _steps(stored):
        if is_clean_close(older, newer):
            return True
        if not _is_by_others(older, newer):
            return False
        seen += 1
        if seen == _VERSIONS_MAX:
            break
    return None


def is_clean_close(older: Manifest, newer: Manifest) -> bool:
    """Return whether this step is the last one of a clean close.

    A step that also removes the writer's own checkpoint must move the WAL: GC removes that checkpoint, too, once it has
    expired, but never moves the WAL.
    """
    same_wal = replace(newer, next_wal_sst_id=older.next_wal_sst_id, replay_after_wal_id=older.replay_after_wal_id)
    if same_wal == older:
        return True
    left = tuple(entry for entry in older.checkpoints if entry.writer_epoch != older.writer_epoch)
    return same_wal != newer and newer.checkpoints == left and replace(same_wal, checkpoints=older.checkpoints) == older


def _is_by_others(older: Manifest, newer: Manifest) -> bool:
    """Return whether another process made this step: a checkpoint, or a commit of the compactor."""

    def of_writer(manifest: Manifest) -> tuple[object, ...]:
        # A compactor takes L0s from the end of the list, a writer adds in front.
        return (
            manifest.writer_epoch,
            manifest.next_wal_sst_id,
            manifest.replay_after_wal_id,
            manifest.last_l0_seq,
            manifest.last_l0_clock_tick,
            manifest.sequence_tracker,
        )

    return of_writer(older) == of_writer(newer)


async def _steps(stored: StoredManifest) -> AsyncIterator[tuple[int, Manifest, Manifest]]:
    """Yield version, the manifest before it and the manifest itself, newest first, as long as both exist."""
    newer = stored.value
    for version in range(stored.id, 1, -1):
        older = await stored.store.read(version - 1)
        if older is None:
            return
        yield version, older, newer
        newer = older
