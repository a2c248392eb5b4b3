"""Soft destroy: fence the processes of a database and mark it; GC deletes it after the grace period.

Source: docs/reference/protocol.md 8.8.
"""

from enum import StrEnum

from shale.core.lazy_dataclass import dataclass
from shale.errors import FencedError, InvalidDbState, InvalidDeletion, LatestRecordMissing
from shale.format.names import below, destroyed_key
from shale.gc.destroy_plan import live_checkpoints
from shale.gc.hard_destroy import DestroyTarget, OnDeleted, destroy, read_newest
from shale.gc.options import DELETE_GRACE_PERIOD_S
from shale.protocol.checkpoints import release_checkpoints, remove_expired_checkpoints
from shale.protocol.compactions_store import COORDINATOR, CompactionsStore, FenceableCompactions
from shale.protocol.manifest_store import COMPACTOR, WRITER, FenceableManifest, StoredManifest
from shale.protocol.markers import DestroyedMark, is_being_deleted, put_destroyed_mark, read_destroyed_mark
from shale.protocol.wal_completeness import require_wal_store
from shale.protocol.wal_fence import fence_wal
from shale.protocol.wal_store import WalStore
from shale.store.wrapper import next_page
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger

_CLAIMS_MAX = 5
log = get_logger("destroy")


class DeletionPhase(StrEnum):
    """The phase of a database's deletion."""

    ALIVE = "alive"
    WAITING = "waiting"
    BLOCKED = "blocked"
    DUE = "due"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class DeletionStatus:
    """The phase, and the marker if there is one."""

    phase: DeletionPhase
    mark: DestroyedMark | None = None


async def destroy_later(target: DestroyTarget) -> DestroyedMark:
    """Fence writer and compactor, and mark the database; the first marker sets the start of the grace period.

    Raises:
        LatestRecordMissing: there are no objects below the path.
        InvalidDbState: there is no complete database, or it is being deleted.
        InvalidRequestError: the WAL is in a store of its own, and that store was not given.
        FencedError: writers or compactors keep starting; stop them first.
    """
    found = await read_destroyed_mark(target.store, target.root)
    if found is not None:
        return found
    stored = await _load(target)
    require_wal_store(stored.value, target.place, target.wal_store)
    stored = await _fence_writer(target, stored)
    await _fence_compactor(target, stored)
    own = [entry.id for entry in stored.value.checkpoints if entry.writer_epoch is not None]
    if own:
        await release_checkpoints(stored, own)
    now_s = target.env.clock.now_ms() // 1000
    mark = await put_destroyed_mark(target.store, target.root, DestroyedMark(now_s, target.env.ids.uuid()))
    log.info(Event.DB_DESTROYED, path=target.root, mode="soft", deleted=0, bytes=0)
    return mark


async def read_deletion_status(
    target: DestroyTarget, *, grace_s: float = DELETE_GRACE_PERIOD_S, dry_run: bool = False
) -> DeletionStatus:
    """Return whether the database is marked and due for deletion; remove the expired checkpoints of a marked one.

    Args:
        dry_run: write nothing; expired checkpoints are ignored.

    Raises:
        LatestRecordMissing: it is marked, but has objects and no manifest: another process deleted too much.
        CorruptionError: the marker is malformed.
    """
    mark = await read_destroyed_mark(target.store, target.root)
    is_begun = await is_being_deleted(target.store, target.root)
    if mark is None:
        # A process that died between deleting the two markers left only one of them, and no manifest.
        is_over = is_begun and await read_newest(target.manifests(), is_begun=True) is None
        return DeletionStatus(DeletionPhase.DUE if is_over else DeletionPhase.ALIVE)
    if is_begun:
        return DeletionStatus(DeletionPhase.DUE, mark)
    now_ms = target.env.clock.now_ms()
    try:
        stored = await target.manifests().load()
    except LatestRecordMissing:
        if await _only_marker_is_left(target):
            return DeletionStatus(DeletionPhase.DUE, mark)
        raise
    if not dry_run:
        await remove_expired_checkpoints(stored, now_ms)
    if live := live_checkpoints(stored.value, now_ms):
        log.warning(Event.DB_DESTROY_BLOCKED, path=target.root, checkpoints=[str(entry.id) for entry in live])
        return DeletionStatus(DeletionPhase.BLOCKED, mark)
    is_over = now_ms > mark.destroyed_at_s * 1000 + grace_s * 1000
    return DeletionStatus(DeletionPhase.DUE if is_over else DeletionPhase.WAITING, mark)


async def delete_due_database(
    target: DestroyTarget, mark: DestroyedMark | None, on_deleted: OnDeleted | None = None
) -> DeletionStatus:
    """Delete a database that is due.

    Args:
        on_deleted: called after each deletion.

    Raises:
        InvalidDbState, InvalidRequestError, UnavailableError: see ``destroy``; try again.
    """
    try:
        await destroy(target, on_deleted=on_deleted)
    except InvalidDeletion as error:
        # A checkpoint was created meanwhile, or there are unknown objects below the root.
        log.warning(Event.DB_DESTROY_BLOCKED, path=target.root, error=error)
        return DeletionStatus(DeletionPhase.BLOCKED, mark)
    return DeletionStatus(DeletionPhase.GONE, mark)


async def _only_marker_is_left(target: DestroyTarget) -> bool:
    """Return whether a process marked the database after another one had deleted it."""
    page = await next_page(target.store.list_pages(below(target.root, "")))
    return {meta.key for meta in page} <= {destroyed_key(target.root)}


async def _load(target: DestroyTarget) -> StoredManifest:
    try:
        stored = await target.manifests().load()
    except LatestRecordMissing:
        if await target.store.list(below(target.root, "")):
            raise InvalidDbState(f"{target.place} is no database: there are objects, but no manifest") from None
        raise
    if await is_being_deleted(target.store, target.root):
        raise InvalidDbState(f"{target.place} is being deleted: finish that with a hard destroy")
    if not stored.value.initialized:
        raise InvalidDbState(f"{target.place} is half built or half destroyed: only a hard destroy removes it")
    return stored


async def _fence_writer(target: DestroyTarget, stored: StoredManifest) -> StoredManifest:
    """Claim the writer epoch and fence the WAL, which stops Shale's and SlateDB's writers."""
    wal = WalStore(target.wal_store or target.store, target.root)
    for attempt in range(_CLAIMS_MAX):
        try:
            manifest = stored.value
            last_id = await wal.last_seen_wal_id(manifest.replay_after_wal_id, has_gaps=manifest.has_parallel_wal)
            fenceable = await FenceableManifest.claim(stored, WRITER)
            await fence_wal(wal, fenceable, last_id + 1, target.env, target.metrics)
            await fenceable.refresh()
        except FencedError:
            # A writer started at the same time: fence it, too, or it would run until it finds the marker.
            if attempt + 1 == _CLAIMS_MAX:
                raise
            stored = await target.manifests().load()
        else:
            return await target.manifests().load()
    raise AssertionError("the last attempt returns or raises")


async def _fence_compactor(target: DestroyTarget, stored: StoredManifest) -> None:
    """Claim the compactor epoch in both files; without a compactions file, only in the manifest."""
    for attempt in range(_CLAIMS_MAX):
        try:
            manifest = await FenceableManifest.claim(stored, COMPACTOR)
            compactions = CompactionsStore(target.store, target.root, target.env, target.metrics)
            if await compactions.try_read_latest() is not None:
                await FenceableCompactions.claim_epoch(await compactions.load(), COORDINATOR, manifest.epoch)
            await manifest.refresh()
        except FencedError:
            if attempt + 1 == _CLAIMS_MAX:
                raise
            await stored.refresh()
        else:
            return
    raise AssertionError("the last attempt returns or raises")
