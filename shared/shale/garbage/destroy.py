"""Destroying a database at once: seal, mark, release its parents, delete.

The order makes every stop safe.  Before the seal nothing has changed; after it nobody can write, pin or clone the
database; after the marker a rerun goes on without asking again; and the marker goes last.

Source: docs/protocol.md 8.8; SlateDB slatedb/src/admin.rs (delete_db).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import anyio

from shale.env import Env
from shale.errors import InvalidDbState, InvalidObjectState, LatestRecordMissing, ShaleError
from shale.format.names import below, deleting_key, wal_prefix
from shale.garbage.destroy_plan import (
    Condemned,
    DestroyPlan,
    Stage,
    classified,
    in_order,
    live_checkpoints,
    require_no_checkpoints,
    require_own_objects,
    sealed,
)
from shale.protocol.checkpoints import release_checkpoints
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.markers import is_being_deleted
from shale.protocol.options import MissingBoundary, ProtocolOptions
from shale.protocol.transactional import Stored
from shale.protocol.versioned import Versioned
from shale.protocol.wal_place import require_wal_place
from shale.store.port import LIST_PAGE, OVERWRITE, ObjectStore
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.telemetry.metrics import Metrics
from shale.types import Manifest

_ATTEMPTS_MAX = 3
"""Somebody else who destroys the same database may be in our way, but only as long as he has not finished."""
_ROUNDS_MAX = 4
_REQUESTS_MAX = 8
_PROTOCOL = ProtocolOptions(component="admin", missing_boundary=MissingBoundary.ZERO)
"""A boundary that disappears is no accident here: it belongs to what is deleted, in our database or in a parent."""
log = get_logger("destroy")

OnDeleted = Callable[[Condemned], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DestroyTarget:
    """A database that is to be destroyed.  ``wal_store``: where its WAL is, if not with the rest."""

    store: ObjectStore
    root: str
    env: Env
    metrics: Metrics
    wal_store: ObjectStore | None = None

    def manifests(self, root: str | None = None) -> ManifestStore:
        """The manifests of the database, or of another one in its store, without anything remembered."""
        return ManifestStore(self.store, self.root if root is None else root, self.env, self.metrics, _PROTOCOL)

    @property
    def place(self) -> str:
        """For messages."""
        return f"{self.root or '/'} in {self.store.url}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Destroyed:
    """What a hard destroy did: what it deleted, in this order, and the parents that it released."""

    objects: tuple[Condemned, ...] = ()
    parents: tuple[str, ...] = ()


async def plan_destroy(target: DestroyTarget) -> DestroyPlan:
    """What ``destroy`` would do now; nothing is written.

    Raises:
        InvalidDbState: there are objects, but no database.
        InvalidDeletion: a key below the root cannot be deleted safely.
    """
    is_begun = await is_being_deleted(target.store, target.root)
    latest = await target.manifests().try_read_latest()
    plan = DestroyPlan(
        root=target.root,
        manifest_id=None if latest is None else latest.id,
        is_begun=is_begun,
        objects=tuple(await _list(target)),
    )
    if latest is None:
        if not is_begun and any(each.stage is not Stage.MARKER for each in plan.objects):
            raise InvalidDbState(f"{target.place} is no database: there are {len(plan.objects)} objects, no manifest")
        return plan
    return replace(
        plan,
        checkpoints=() if is_begun else live_checkpoints(latest.value, target.env.clock.now_ms()),
        parents=tuple(entry.path for entry in latest.value.external_dbs if entry.final_checkpoint_id is not None),
    )


async def destroy(target: DestroyTarget, *, force: bool = False, on_deleted: OnDeleted | None = None) -> Destroyed:
    """Delete a database for ever, or what an earlier attempt has left of it; nothing at all is success.

    Writers, compactors and collectors of it have been stopped by the caller, and its path is not used again while one
    of them may still exist.

    Args:
        force: in spite of live checkpoints and of objects below the root that are not the database's.
        on_deleted: called after each deletion.

    Raises:
        InvalidDbState: there is no database but other objects, or somebody keeps writing below the root.
        InvalidDeletion: checkpoints are alive, or there are objects of nobody known.
        InvalidRequestError: the WAL is in a store of its own that was not named.
        UnavailableError: the store failed; call again.
    """
    for attempt in range(_ATTEMPTS_MAX):
        try:
            return await _destroy(target, force=force, on_deleted=on_deleted)
        except (InvalidObjectState, LatestRecordMissing):
            # The manifest was there and is gone: somebody else destroys this database as well.
            if attempt + 1 == _ATTEMPTS_MAX:
                raise
    raise AssertionError("the last attempt returns or raises")


async def _destroy(target: DestroyTarget, *, force: bool, on_deleted: OnDeleted | None) -> Destroyed:
    plan = await plan_destroy(target)
    if not plan.objects and not plan.is_begun:
        return Destroyed()
    if not force:
        require_own_objects(plan)
    manifests = target.manifests()
    latest = await manifests.try_read_latest()
    if latest is not None:
        if not force:
            require_wal_place(latest.value, target.place, is_named=target.wal_store is not None)
        if not plan.is_begun:
            latest = await _seal(Stored(manifests, latest, target.env), target, force=force)
            await target.store.put(deleting_key(target.root), b"", mode=OVERWRITE)
        await _release_parents(target, latest.value)
    plan = replace(plan, objects=())  # of a million objects one list is enough
    gone = await _delete_everything(target, force=force, on_deleted=on_deleted)
    await target.store.delete(deleting_key(target.root))
    log.info(Event.DB_DESTROYED, path=target.root, mode="hard", deleted=len(gone), bytes=sum(o.size for o in gone))
    return Destroyed(objects=tuple(gone), parents=plan.parents)


async def _seal(stored: Stored[Manifest], target: DestroyTarget, *, force: bool) -> Versioned[Manifest]:
    """Check and seal in one conditional write, so that no checkpoint can come in between.

    Raises:
        InvalidDeletion: checkpoints are alive.
    """
    written: Manifest | None = None

    def change(current: Versioned[Manifest]) -> Manifest | None:
        nonlocal written
        if current.value == written:
            return None  # the answer to our own write was lost, or somebody sealed just alike
        if not force:
            require_no_checkpoints(target.root, current.value, target.env.clock.now_ms())
        written = sealed(current.value)
        return written

    return await stored.apply(change)


async def _release_parents(target: DestroyTarget, manifest: Manifest) -> None:
    """Remove the checkpoints that keep other databases for this one; marked or not, they must be able to end."""
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
            if await target.manifests(entry.path).try_read_latest() is not None:
                raise
            continue  # it was deleted while we wrote


async def _delete_everything(target: DestroyTarget, *, force: bool, on_deleted: OnDeleted | None) -> list[Condemned]:
    """Delete what listings show until one shows nothing, as requests of processes that died may still arrive."""
    gone: list[Condemned] = []

    def note(each: Condemned) -> None:
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


async def _delete_stage(target: DestroyTarget, objects: Sequence[Condemned], note: OnDeleted) -> None:
    """Delete these, many with one request and several requests at a time.

    Raises:
        ShaleError: the first error; what was not tried is left for a rerun.
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


async def _delete_batch(target: DestroyTarget, batch: Sequence[Condemned]) -> Mapping[str, ShaleError]:
    """What went wrong, by key."""
    failed: dict[str, ShaleError] = {}
    for in_wal_store, objects in groupby(batch, key=lambda each: each.in_wal_store):
        store = target.wal_store if in_wal_store and target.wal_store is not None else target.store
        failed.update(await store.delete_many([each.key for each in objects]))
    return failed


async def _list(target: DestroyTarget) -> list[Condemned]:
    """Everything that goes, by stage."""
    found: list[Condemned] = []
    async for page in target.store.list_pages(below(target.root, "")):
        found += classified(target.root, page)
    wal_store = target.wal_store
    if wal_store is not None and wal_store.url != target.store.url:
        async for page in wal_store.list_pages(wal_prefix(target.root)):
            found += classified(target.root, page, in_wal_store=True)
    return in_order(target.root, found)
