"""Removes backups, and the copies that no remaining backup needs.

The order makes an interruption harmless: first the documents, then the copies.  The lock keeps new backups from using
copies that are about to be deleted (``BackupStore.require_no_prune``).

A backup that seems abandoned may still run, and may be completed meanwhile.  So its plan is removed first, then the new
documents are read, and what they name is kept.  A backup whose document comes later finds its plan gone
(``shale.backup.complete``).
"""

from collections.abc import Callable, Sequence

from shale.backup.backup_store import BackupStore
from shale.backup.planner import PrunePlan, PruneRules, plan_prune, without_completed
from shale.env import Env
from shale.errors import ShaleError, UnavailableError
from shale.store.port import LIST_PAGE
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger

log = get_logger("backup")


async def plan(store: BackupStore, rules: PruneRules, env: Env) -> PrunePlan:
    """Return what a prune would delete.  Nothing is written.

    Raises:
        CorruptionError: a document is damaged, so what it needs is unknown; nothing is deleted until it is removed.
    """
    # A backup that ends meanwhile is in the first list or in the second one, whose order is that of its steps.
    unfinished = [each.needs for each in await store.unfinished()]
    backups = await store.backups()
    return plan_prune(backups, unfinished, await store.present(), rules, env.clock.now_ms())


async def prune(
    store: BackupStore,
    rules: PruneRules,
    env: Env,
    *,
    break_lock: bool = False,
    on_deleted: Callable[[int, int], None] | None = None,
) -> PrunePlan:
    """Delete what ``plan`` returns, under the lock; return what was deleted.

    Args:
        store: the backups.
        rules: which to remove.
        env: the clock.
        break_lock: remove the locks of prunes that were killed.
        on_deleted: called with the objects deleted so far, and their total.

    Returns:
        The plan, without backups that were completed meanwhile, and without their copies.

    Raises:
        InvalidDbState: another prune runs.
        UnavailableError: objects could not be deleted; the next prune tries again.
        CorruptionError: see ``plan``.
    """
    lock_id = await store.lock(break_lock=break_lock)
    try:
        done = await _remove_backups(store, await plan(store, rules, env))
        errors = await _delete_copies(store, [name for name, _ in done.objects], on_deleted)
    finally:
        await store.unlock(lock_id)
    log.info(Event.BACKUP_PRUNED, backups=len(done.removed), objects=len(done.objects), bytes=done.size)
    if errors:
        name, error = next(iter(errors.items()))
        raise UnavailableError(
            f"{len(errors)} of {len(done.objects)} objects were not deleted, such as {name}: {error}"
        )
    return done


async def _remove_backups(store: BackupStore, planned: PrunePlan) -> PrunePlan:
    """Remove documents, and the plans of abandoned backups; return what is left to delete."""
    for backup in planned.removed:
        await store.delete_document(backup.id)
    for abandoned in planned.abandoned:
        await store.finish(abandoned.id)
    known = {each.id for each in (*planned.kept, *planned.removed)}
    return without_completed(planned, await store.backups(known))


async def _delete_copies(
    store: BackupStore, copies: Sequence[str], on_deleted: Callable[[int, int], None] | None
) -> dict[str, ShaleError]:
    errors: dict[str, ShaleError] = {}
    for start in range(0, len(copies), LIST_PAGE):
        page = copies[start : start + LIST_PAGE]
        errors |= await store.delete_copies(page)
        if on_deleted is not None:
            on_deleted(start + len(page), len(copies))
    return errors
