"""GC sweeps of each namespace: manifests and compactions, SSTs, WAL files, and parents of a clone."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

from shale.errors import LatestRecordMissing, ManifestMissing, ProtocolPanic, ShaleError
from shale.format.names import sst_key
from shale.gc.database import GcDatabase
from shale.gc.options import Task
from shale.gc.passes import GcProgress, Pass
from shale.gc.plan import Candidate
from shale.gc.planner import (
    Cutoff,
    VersionPlan,
    cutoff_for_ssts,
    plan_compacted_gc,
    plan_compactions_gc,
    plan_detach,
    plan_manifest_gc,
    plan_records_gc,
    plan_wal_gc,
)
from shale.gc.ulid_set import UlidSet
from shale.protocol.checkpoints import release_checkpoints
from shale.protocol.followers import oldest_followed_wal_id
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.markers import is_destroyed
from shale.protocol.transactional import Stored
from shale.protocol.versioned import VersionList, VersionMeta
from shale.protocol.versioned_store import VersionedStore
from shale.protocol.wal_completeness import require_wal_store
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.types import ExternalDb, Manifest

WHY: Mapping[Task, str] = {
    Task.MANIFEST: "unreferenced",
    Task.COMPACTIONS: "unreferenced",
    Task.COMPACTED: "unreferenced",
    Task.WAL: "not needed for replay",
    Task.WAL_FENCE: "an obsolete fence",
    Task.DETACH: "a parent that no version reads",
}
"""The reasons that logs and saved plans show."""
_OLD_RECORD = "the record of a compaction that ended long ago"
_LISTINGS_MAX = 3
_CHUNK = 1000
log = get_logger("gc")


async def sweep_manifests(database: GcDatabase, this: Pass) -> None:
    """Delete manifests that no process can need.

    Raises:
        LatestRecordMissing: there is no manifest, so there is no database.
        ManifestMissing: the newest listed manifest was deleted before each attempt to read it.
    """
    versions, pinned = await _versions_and_pins(database)
    plan = plan_manifest_gc(versions, pinned=pinned, now_ms=this.now_ms, min_age_ms=this.options.min_age_ms)
    await _sweep_versions(database.manifests, versions, plan, this)


async def sweep_compactions(database: GcDatabase, this: Pass) -> None:
    """Delete all old compactions files except the newest, and old records of compactions.

    Raises:
        CorruptionError: the newest one is corrupt; nothing is deleted.
    """
    versions = await database.compactions.list_versions()
    if len(versions) > 1:
        # If the newest file is corrupt, a repair needs the older ones.
        await database.compactions.read(versions[-1].id)
    plan = plan_compactions_gc(versions, now_ms=this.now_ms, min_age_ms=this.options.min_age_ms)
    await _sweep_versions(database.compactions, versions, plan, this)
    records = replace(this, progress=GcProgress())
    await records.execute(_record_candidates(database, records), database.delete_objects, why=_OLD_RECORD)
    this.progress.add(records.progress)
    this.instruments.planned(this.task, this.progress.planned)


async def _record_candidates(database: GcDatabase, this: Pass) -> AsyncIterator[Sequence[Candidate]]:
    async for page in database.compactions.records.pages():
        this.count_listed([meta for _, meta in page])
        planned = plan_records_gc(page, active=(), now_ms=this.now_ms, min_age_ms=this.options.min_age_ms)
        if not planned:
            continue
        # Read after the listing, and only if needed: an id that has ended is never active again.
        latest = await database.compactions.try_read_latest()
        if latest is None:
            return
        active = {entry.id for entry in latest.value.entries if entry.is_active}
        planned = plan_records_gc(page, active=active, now_ms=this.now_ms, min_age_ms=this.options.min_age_ms)
        yield [Candidate(0, meta.key, meta.size, meta.last_modified_ms) for meta in planned]


async def _sweep_versions(store: VersionedStore[Any], versions: VersionList, plan: VersionPlan, this: Pass) -> None:
    this.count_listed(versions)
    this.instruments.versions(this.task, len(versions))
    await this.execute(
        _version_candidates(store, plan.candidates),
        lambda candidates: store.delete_many([each.id for each in candidates]),
        why=WHY[this.task],
        boundary=plan.boundary,
        advance=store.advance_boundary,
    )
    this.instruments.versions(this.task, len(versions) - this.progress.deleted)


async def _version_candidates(
    store: VersionedStore[Any], candidates: Sequence[VersionMeta]
) -> AsyncIterator[Sequence[Candidate]]:
    for first in range(0, len(candidates), _CHUNK):
        part = candidates[first : first + _CHUNK]
        yield [Candidate(each.id, store.namespace.key(each.id), each.size, each.last_modified_ms) for each in part]


async def _versions_and_pins(database: GcDatabase) -> tuple[VersionList, frozenset[int]]:
    """Return a listing, and the manifest ids that the newest manifest of that listing pins."""
    newest_id = 0
    for _ in range(_LISTINGS_MAX):
        versions = await database.manifests.list_versions()
        if not versions:
            raise LatestRecordMissing(f"no manifest below {database.root or '/'}")
        newest_id = versions[-1].id
        latest = await database.manifests.read(newest_id)
        if latest is not None:
            return versions, frozenset(checkpoint.manifest_id for checkpoint in latest.checkpoints)
        # Another collector deleted it, so there are newer ones.
    raise ManifestMissing(newest_id)


async def sweep_compacted(database: GcDatabase, this: Pass) -> None:
    """Delete SSTs that are unused and too old to belong to work in progress.

    The compactions are read before the manifest: the manifest then names the outputs of a job that commits in
    between.  In the other order both reads could miss them.

    Raises:
        ManifestMissing: the manifest of a checkpoint is gone, so the SSTs in use are unknown; nothing is deleted.
    """
    compactions = await database.compactions.try_read_latest()
    latest = await database.manifests.read_latest()
    active = UlidSet()
    await database.env.cpu.run(partial(_add_ssts, active, latest.value))
    async for _, manifest in database.checkpointed(latest):
        await database.env.cpu.run(partial(_add_ssts, active, manifest))
    cutoff = cutoff_for_ssts(
        latest.value,
        compactions.value if compactions is not None else None,
        now_ms=this.now_ms,
        min_age_ms=this.options.min_age_ms,
    )
    this.instruments.cutoff(cutoff)
    log.debug(
        Event.GC_CUTOFF_COMPUTED,
        min_age_ms=cutoff.min_age_ms,
        compactions_ms=cutoff.compactions_ms,
        newest_l0_ms=cutoff.newest_l0_ms,
        final_ms=cutoff.final_ms,
    )
    await this.execute(_sst_candidates(database, this, active, cutoff), database.delete_objects, why=WHY[this.task])


def _add_ssts(active: UlidSet, manifest: Manifest) -> None:
    """Add the SSTs of one manifest.  Runs in a CPU thread: a large manifest takes a second or more."""
    active.update(view.sst.id for view in manifest.views())


async def _sst_candidates(
    database: GcDatabase, this: Pass, active: Collection[int], cutoff: Cutoff
) -> AsyncIterator[Sequence[Candidate]]:
    async for page in database.sst_pages():
        this.count_listed(page)
        planned = plan_compacted_gc(page, active=active, cutoff=cutoff)
        yield [Candidate(file.id, sst_key(database.root, file.id), file.size, file.id.ms) for file in planned]


async def sweep_wal(database: GcDatabase, this: Pass) -> None:
    """Delete WAL files with rows, or fences, according to the task of the pass.

    Raises:
        ManifestMissing: the manifest of a checkpoint is gone, so the files in use are unknown; nothing is deleted.
        InvalidRequestError: the WAL is in a store of its own, and that store was not given.
    """
    latest = await database.manifests.read_latest()
    require_wal_store(latest.value, database.name, database.wal_store if database.has_own_wal_store else None)
    checkpointed = {id_: manifest async for id_, manifest in database.checkpointed(latest, trees=False)}
    followed = oldest_followed_wal_id(latest.value, checkpointed)
    chunks = _wal_candidates(database, this, latest.value, tuple(checkpointed.values()), followed)
    await this.execute(chunks, database.delete_wal, why=WHY[this.task])


async def _wal_candidates(
    database: GcDatabase, this: Pass, latest: Manifest, checkpointed: Sequence[Manifest], followed: int | None
) -> AsyncIterator[Sequence[Candidate]]:
    async for page in database.wal.pages():
        this.count_listed(page)
        planned = plan_wal_gc(
            page,
            latest=latest,
            checkpointed=checkpointed,
            oldest_followed_wal_id=followed,
            fences=this.task is Task.WAL_FENCE,
            now_ms=this.now_ms,
            min_age_ms=this.options.min_age_ms,
        )
        yield [Candidate(file.id, database.wal.key(file.id), file.size, file.last_modified_ms) for file in planned]


async def sweep_detach(database: GcDatabase, this: Pass) -> None:
    """Release the checkpoints of unused parents and drop their entries.

    Raises:
        ManifestMissing: the manifest of a checkpoint is gone, and it may still read a parent.
    """
    latest = await database.manifests.read_latest()
    checkpointed = [manifest async for _, manifest in database.checkpointed(latest, trees=False)]
    unused = [
        external
        for external in plan_detach(latest.value, checkpointed)
        if this.only is None or _parent_name(external) in this.only
    ]
    this.plan([Candidate(0, _parent_name(external), 0, this.now_ms) for external in unused], WHY[this.task])
    if not unused:
        return
    if this.options.dry_run:
        log.info(Event.GC_PLAN, resource=this.task.value, count=len(unused), bytes=0, boundary=None)
        return
    released = [external for external in unused if await _release_parent(database, external, this)]
    if not released:
        return
    ids = frozenset(external.final_checkpoint_id for external in released)
    stored = Stored(database.manifests, latest, database.env)
    await stored.apply(lambda current: _without(current.value, ids))
    for external in released:
        this.instruments.detached()
        this.instruments.deleted(this.task, 1, 0)
        this.progress.deleted += 1
        log.info(Event.CLONE_DETACHED, path=external.path, checkpoint_id=str(external.final_checkpoint_id))


def _parent_name(external: ExternalDb) -> str:
    """Return the name of a parent in a plan: a clone may hold several checkpoints in one parent."""
    return f"{external.path}@{external.final_checkpoint_id}"


async def _release_parent(database: GcDatabase, external: ExternalDb, this: Pass) -> bool:
    """Remove this clone's checkpoint from the parent; return ``False`` if a later pass must try again."""
    assert external.final_checkpoint_id is not None
    parents = ManifestStore(database.store, external.path, database.env, database.metrics, database.protocol)
    try:
        parent = await parents.try_read_latest()
        if parent is None:
            # Without a manifest and without a marker there is nothing left to release.
            return not await is_destroyed(database.store, external.path)
        await release_checkpoints(Stored(parents, parent, database.env), [external.final_checkpoint_id])
    except ProtocolPanic:
        raise
    except ShaleError as error:
        this.instruments.error(this.task, error)
        log.error(Event.CLONE_DETACH_FAILED, path=external.path, error=error)
        return False
    return True


def _without(manifest: Manifest, final_checkpoint_ids: Collection[UUID | None]) -> Manifest | None:
    kept = tuple(
        external for external in manifest.external_dbs if external.final_checkpoint_id not in final_checkpoint_ids
    )
    return None if len(kept) == len(manifest.external_dbs) else replace(manifest, external_dbs=kept)
