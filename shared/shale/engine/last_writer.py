"""Whether the last writer of a database is known to have closed it: what asks before it fences anybody.

A writer leaves no sign of life while it has nothing to write, so silence proves nothing.  A clean close does: its last
act is a version in which nothing changes but where the WAL ends and where replay begins (docs/protocol.md 4.11).
Until a later writer claims, others only add checkpoints and runs.

Nobody else writes such a version on purpose, and ours never do after a lost answer (``Stored.apply``).  SlateDB's
repeat what has landed unless the store kept the put's id with it.  So where it did not, nothing is believed.
"""

from collections.abc import AsyncIterator
from dataclasses import replace

from shale.errors import InvalidDbState
from shale.protocol.manifest_store import StoredManifest
from shale.types import Manifest, WalId

_CURE = "stop the writer, or fence it explicitly"


async def require_closed_writer(stored: StoredManifest, last_wal_id: WalId) -> None:
    """Return if no writer can be alive: there never was one, or the last one has closed.

    Args:
        last_wal_id: the newest WAL file.

    Raises:
        InvalidDbState: a writer is or may be running; says how that is known.
    """
    newest = stored.value
    if newest.writer_epoch == 0:
        return
    if last_wal_id >= newest.next_wal_sst_id:
        raise InvalidDbState(
            f"writer epoch {newest.writer_epoch} has not closed the database: the manifest does not know "
            f"WAL file {last_wal_id}; {_CURE}"
        )
    async for version, older, newer in _steps(stored):
        if is_close(older, newer):
            if await stored.store.can_be_repeated(version):
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


def is_close(older: Manifest, newer: Manifest) -> bool:
    """Whether this step is the last one of a writer that closes."""
    return replace(newer, next_wal_sst_id=older.next_wal_sst_id, replay_after_wal_id=older.replay_after_wal_id) == older


def _is_by_others(older: Manifest, newer: Manifest) -> bool:
    """Whether this step is no writer's: a checkpoint, or something of the compactor's."""

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
    """Ids of versions, the ones before them, and they themselves, newest first, as far as they still exist."""
    newer = stored.value
    for version in range(stored.id, 1, -1):
        older = await stored.store.read(version - 1)
        if older is None:
            return
        yield version, older, newer
        newer = older
