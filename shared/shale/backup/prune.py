"""Removes backups, and the copies that no remaining backup needs.

The order makes an interruption harmless: first the documents, then the copies.  The lock keeps new backups from using
copies that are about to be deleted (``BackupStore.require_no_prune``).
"""

from collections.abc import Callable

from shale.backup.backup_store import BackupStore
from shale.backup.planner import PrunePlan, PruneRules, plan_prune
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
    """Delete what ``plan`` returns, under the lock; return the plan.

    Args:
        store: the backups.
        rules: which to remove.
        env: the clock.
        break_lock: remove the locks of prunes that were killed.
        on_deleted: called with the objects deleted so far, and their total.

    Raises:
        InvalidDbState: another prune runs.
        UnavailableError: objects could not be deleted; the next prune tries again.
        CorruptionError: see ``plan``.
    """
    lock_id = await store.lock(break_lock=break_lock)
    try:
        planned = await plan(store, rules, env)
        for backup in planned.removed:
            await store.delete_document(backup.id)
        for abandoned in planned.abandoned:
            await store.finish(abandoned.id)
        names = [name for name, _ in planned.objects]
        errors: dict[str, ShaleError] = {}
        for start in range(0, len(names), LIST_PAGE):
            page = names[start : start + LIST_PAGE]
            errors |= await store.delete_copies(page)
            if on_deleted is not None:
                on_deleted(start + len(page), len(names))
    finally:
        await store.unlock(lock_id)
    log.info(Event.BACKUP_PRUNED, backups=len(planned.removed), objects=len(names), bytes=planned.size)
    if errors:
        name, error = next(iter(errors.items()))
        raise UnavailableError(f"{len(errors)} of {len(names)} objects were not deleted, such as {name}: {error}")
    return planned
