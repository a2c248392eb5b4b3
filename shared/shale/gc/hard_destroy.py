"""Destroy a database at once: seal its manifest, put the marker, release its parents, delete its objects.

The order makes an interruption safe at any step.  Before the seal nothing has changed.  After it, no process can
write, pin or clone the database.  After the marker, a rerun continues without checking for checkpoints again.  The
marker is deleted last, after the commit records of the two-phase mode.

Source: docs/reference/protocol.md 8.8; SlateDB slatedb/src/admin.rs (delete_db).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import anyio

from shale.core.lazy_dataclass import dataclass
from shale.env import Env
from shale.errors import InvalidDbState, InvalidObjectState, LatestRecordMissing, ShaleError
from shale.format.names import below, deleting_key, wal_prefix
from shale.gc.destroy_plan import (
    DeletionStage,
    DestroyPlan,
    ObjectToDelete,
    classify,
    live_checkpoints,
    require_no_checkpoints,
    require_own_objects,
    sealed,
    sort_for_deletion,
)
from shale.protocol.checkpoints import release_checkpoints
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.markers import is_being_deleted
from shale.protocol.options import MissingBoundary, ProtocolOptions
from shale.protocol.transactional import Stored
from shale.protocol.versioned import Versioned
from shale.protocol.wal_completeness import require_wal_store
from shale.store.port import LIST_PAGE, OVERWRITE, ObjectStore
from shale.store.two_phase.names import parse_staged_key
from shale.store.two_phase.store import two_phase_of
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.telemetry.metrics import Metrics
from shale.types import MANIFEST_VERSION, Manifest, ManifestVersion

_ATTEMPTS_MAX = 3
"""A concurrent destroy of the same database causes conflicts only until it has finished."""
_ROUNDS_MAX = 4
_REQUESTS_MAX = 8
_PROTOCOL = ProtocolOptions(component="admin", missing_boundary=MissingBoundary.ZERO)
"""A boundary file may disappear here: a destroy deletes it, of this database or of a parent."""
log = get_logger("destroy")

OnDeleted = Callable[[ObjectToDelete], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DestroyTarget:
    """A database to destroy.  ``wal_store``: the store of its WAL, if separate."""

    store: ObjectStore
    root: str
    env: Env
    metrics: Metrics
    wal_store: ObjectStore | None = None
    manifest_write_version: ManifestVersion = MANIFEST_VERSION

    def manifests(self, root: str | None = None) -> ManifestStore:
        """Return the manifests of this database, or of another one in its store, with an empty cache."""
        protocol = replace(_PROTOCOL, manifest_write_version=self.manifest_write_version)
        return ManifestStore(self.store, self.root if root is None else root, self.env, self.metrics, protocol)

    @property
    def place(self) -> str:
        """For messages."""
        return f"{self.root or '/'} in {self.store.url}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HardDestroyResult:
    """The objects that a hard destroy deleted, in order of deletion, and the paths of the parents that it released."""

    objects: tuple[ObjectToDelete, ...] = ()
    parents: tuple[str, ...] = ()


async def read_newest(manifests: ManifestStore, *, is_begun: bool) -> Versioned[Manifest] | None:
    """Return the newest manifest; ``None`` if there is none.

    Args:
        is_begun: the marker of a destroy is there.  Then nothing is compared with the boundary: with two-phase creates
            a deletion of the newest manifest raises the boundary first, and may have ended there.
    """
    if not is_begun:
        return await manifests.try_read_latest()
    try:
        return await manifests.read_base()
    except InvalidObjectState:
        # Deleted meanwhile, or the record of a late put whose bytes are deleted: parents are released before that.
        return None


async def plan_destroy(target: DestroyTarget) -> DestroyPlan:
    """Return what ``destroy`` would do now; nothing is written.

    Raises:
        InvalidDbState: there are objects, but no database.
        InvalidDeletion: a key below the root cannot be deleted safely.
    """
    is_begun = await is_being_deleted(target.store, target.root)
    objects = tuple(await _list(target))
    latest = await read_newest(target.manifests(), is_begun=is_begun) if objects else None
    plan = DestroyPlan(
        root=target.root, manifest_id=None if latest is None else latest.id, is_begun=is_begun, objects=objects
    )
    if latest is None:
        if not is_begun and any(_shows_a_database(each) for each in plan.objects):
            raise InvalidDbState(f"{target.place} is no database: there are {len(plan.objects)} objects, no manifest")
        return plan
    return replace(
        plan,
        checkpoints=() if is_begun else live_checkpoints(latest.value, target.env.clock.now_ms()),
        parents=tuple(entry.path for entry in latest.value.external_dbs if entry.final_checkpoint_id is not None),
    )


def _shows_a_database(found: ObjectToDelete) -> bool:
    """Return whether there was a database, or something else, and not only what a dead process has staged."""
    is_scratch = found.stage in (DeletionStage.MARKER, DeletionStage.PREFLIGHT)
    return not is_scratch and parse_staged_key(found.key) is None


async def destroy(
    target: DestroyTarget, *, force: bool = False, on_deleted: OnDeleted | None = None
) -> HardDestroyResult:
    """Delete a database permanently, or the remains of an earlier attempt; succeeds if there is nothing to delete.

    The caller must stop its writers, compactors and collectors first, and must not reuse the path while one of them
    may still run.

    Args:
        force: ignore live checkpoints, and also delete objects below the root that the database does not know.
        on_deleted: called after each deletion.

    Raises:
        InvalidDbState: there are objects but no database, or new objects keep appearing below the root.
        InvalidDeletion: there are live checkpoints or unknown objects.
        InvalidRequestError: the WAL is in a store of its own, and that store was not given.
        UnavailableError: the store failed; call again.
    """
    for attempt in range(_ATTEMPTS_MAX):
        try:
            return await _destroy(target, force=force, on_deleted=on_deleted)
        except (InvalidObjectState, LatestRecordMissing):
            # The manifest existed and is gone: another process destroys this database, too.
            if attempt + 1 == _ATTEMPTS_MAX:
                raise
    raise AssertionError("the last attempt returns or raises")


async def _destroy(target: DestroyTarget, *, force: bool, on_deleted: OnDeleted | None) -> HardDestroyResult:
    plan = await plan_destroy(target)
    if not plan.objects and not plan.is_begun:
        await _remove_records(target)  # a put of a dead process may have arrived after the end of an earlier destroy
        return HardDestroyResult()
    if not force:
        require_own_objects(plan)
    manifests = target.manifests()
    latest = await read_newest(manifests, is_begun=plan.is_begun)
    if latest is not None:
        if not force:
            require_wal_store(latest.value, target.place, target.wal_store)
        if not plan.is_begun:
            latest = await _seal(Stored(manifests, latest, target.env), target, force=force)
            await target.store.put(deleting_key(target.root), b"", mode=OVERWRITE)
        await _release_parents(target, latest.value)
    plan = replace(plan, objects=())  # frees the list before the next one: there may be a million objects
    gone = await _delete_everything(target, force=force, on_deleted=on_deleted)
    await _remove_records(target)
    await target.store.delete(deleting_key(target.root))
    log.info(Event.DB_DESTROYED, path=target.root, mode="hard", deleted=len(gone), bytes=sum(o.size for o in gone))
    return HardDestroyResult(objects=tuple(gone), parents=plan.parents)


async def _seal(stored: Stored[Manifest], target: DestroyTarget, *, force: bool) -> Versioned[Manifest]:
    """Check and seal in one conditional write, so that no checkpoint can be added in between.

    Raises:
        InvalidDeletion: there are live checkpoints.
    """
    written: Manifest | None = None

    def change(current: Versioned[Manifest]) -> Manifest | None:
        nonlocal written
        if current.value == written:
            return None  # this call's own write succeeded and its response was lost, or another process wrote the same
        if not force:
            require_no_checkpoints(target.root, current.value, target.env.clock.now_ms())
        written = sealed(current.value)
        return written

    return await stored.apply(change)


async def _release_parents(target: DestroyTarget, manifest: Manifest) -> None:
    """Remove the checkpoints that this database holds in its parents."""
    for entry in manifest.external_dbs:
        if entry.final_checkpoint_id is None:
            continue
        parents = target.manifests(entry.path)
        try:
            parent = await parents.load()
            await release_checkpoints(parent, [entry.final_checkpoint_id])
        except LatestRecordMissing:
            continue
        except InvalidObjectState:
            if await _is_alive(target, entry.path):
                raise


async def _is_alive(target: DestroyTarget, root: str) -> bool:
    """Return whether a database is neither deleted nor being deleted; one that is has no checkpoints any more."""
    if await is_being_deleted(target.store, root):
        return False
    return await target.manifests(root).try_read_latest() is not None


async def _delete_everything(
    target: DestroyTarget, *, force: bool, on_deleted: OnDeleted | None
) -> list[ObjectToDelete]:
    """List and delete until a listing is empty: requests of dead processes may still arrive and create objects."""
    gone: list[ObjectToDelete] = []

    def note(each: ObjectToDelete) -> None:
        gone.append(each)
        if on_deleted is not None:
            on_deleted(each)

    for _ in range(_ROUNDS_MAX):
        found = await _list(target)
        if not found:
            return gone
        if not force:
            require_own_objects(DestroyPlan(root=target.root, manifest_id=None, is_begun=True, objects=tuple(found)))
        for _, stage in groupby(found, key=lambda each: each.stage):
            await _delete_stage(target, list(stage), note)
    raise InvalidDbState(f"objects keep appearing below {target.place}: a process of the database is still at work")


async def _remove_records(target: DestroyTarget) -> None:
    """Remove the commit records and low-water marks of the two-phase mode, once no object needs them."""
    for store in filter(None, (target.store, target.wal_store)):
        two_phase = two_phase_of(store)
        if two_phase is not None:
            await two_phase.records.remove_all(below(target.root, ""))


async def _delete_stage(target: DestroyTarget, objects: Sequence[ObjectToDelete], note: OnDeleted) -> None:
    """Delete objects in batches, several requests at a time.

    Raises:
        ShaleError: the first error; the remaining objects are left for a rerun.
    """
    errors: list[ShaleError] = []
    batches = iter([objects[start : start + LIST_PAGE] for start in range(0, len(objects), LIST_PAGE)])

    async def work() -> None:
        for batch in batches:
            try:
                failed = await _delete_batch(target, batch)
            except ShaleError as error:
                errors.append(error)
            else:
                errors.extend(failed.values())
                for each in batch:
                    if each.key not in failed:
                        note(each)
            if errors:
                return

    async with anyio.create_task_group() as tasks:
        for _ in range(min(_REQUESTS_MAX, len(objects))):
            tasks.start_soon(work)
    if errors:
        raise errors[0]


async def _delete_batch(target: DestroyTarget, batch: Sequence[ObjectToDelete]) -> Mapping[str, ShaleError]:
    """Delete one batch; return the errors by key."""
    failed: dict[str, ShaleError] = {}
    for in_wal_store, objects in groupby(batch, key=lambda each: each.in_wal_store):
        store = target.wal_store if in_wal_store and target.wal_store is not None else target.store
        failed.update(await store.delete_many([each.key for each in objects]))
    return failed


async def _list(target: DestroyTarget) -> list[ObjectToDelete]:
    """List all objects to delete, in order of deletion."""
    found: list[ObjectToDelete] = []
    async for page in target.store.list_pages(below(target.root, "")):
        found += classify(target.root, page)
    wal_store = target.wal_store
    if wal_store is not None and wal_store.url != target.store.url:
        async for page in wal_store.list_pages(wal_prefix(target.root)):
            found += classify(target.root, page, in_wal_store=True)
    return sort_for_deletion(target.root, found)
