"""Completes a backup, unless a prune has removed it because it began too long ago (``abandoned_after``).

The backup writes its document and then looks for its plan.  The prune removes the plan and then reads the documents,
and deletes no copy that one of them names.  So if the plan is still there, every prune sees the document in time.

If the plan is gone, a prune may have removed it before it could see the document; or another process has completed the
same backup, and has cleaned up.  The copies tell, as soon as no prune runs: a later prune sees the document.
"""

import anyio

from shale.backup.backup_store import BackupStore
from shale.backup.document import Backup
from shale.backup.planner import lost_copies
from shale.backup.prune_lock import find_lock
from shale.errors import InvalidDbState, NotFoundError
from shale.types import Ulid

_POLLS_MAX = 30
_POLL_INTERVAL_S = 1.0


async def require_in_progress(target: BackupStore, backup_id: Ulid) -> None:
    """Check that a backup has a plan, or was completed by another process.

    Raises:
        InvalidDbState: it has neither: a prune has removed it.
    """
    if not await target.has_plan(backup_id) and backup_id not in await target.ids():
        raise await _given_up(target, backup_id)


async def complete_backup(target: BackupStore, backup: Backup) -> Backup:
    """Write the document of a backup whose copies are there; return the stored one.

    Raises:
        InvalidDbState: a prune has removed the backup, or may have deleted copies of it and does not end.
    """
    await require_in_progress(target, backup.id)
    try:
        stored = await target.create(backup)
    except NotFoundError:
        raise await _given_up(target, backup.id) from None
    if not await target.has_plan(backup.id):
        await _require_kept(target, stored)
    return stored


async def _require_kept(target: BackupStore, backup: Backup) -> None:
    """Check that no prune has deleted copies of a complete backup without a plan; else delete its document."""
    if not await _wait_until_no_prune_runs(target):
        raise InvalidDbState(
            f"{target.store.url}: a prune runs below {target.root or '/'} that may have removed backup {backup.id} "
            "while it was made, because it began longer ago than abandoned_after: "
            f"when the prune has ended, run `backup verify {backup.id}`"
        )
    if lost_copies(backup.objects, await target.present()):
        await target.delete_document(backup.id)
        raise await _given_up(target, backup.id)


async def _wait_until_no_prune_runs(target: BackupStore) -> bool:
    """Return whether no prune runs, now or soon."""
    for _ in range(_POLLS_MAX):
        if await find_lock(target.store, target.root) is None:
            return True
        await anyio.sleep(_POLL_INTERVAL_S)
    return False


async def _given_up(target: BackupStore, backup_id: Ulid) -> InvalidDbState:
    """Remove what is left of the plan of a backup that a prune has removed; return the error."""
    await target.finish(backup_id)
    return InvalidDbState(
        f"{target.store.url}: a prune below {target.root or '/'} has removed backup {backup_id} while it was made, "
        "because it began longer ago than abandoned_after: run this again, and prunes with a longer abandoned_after"
    )
