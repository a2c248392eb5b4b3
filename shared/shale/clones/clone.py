"""Create a clone: a new database that reads the SSTs of others in place.

The order of the steps makes a crash after any of them safe.  SSTs that the clone does not borrow come first: without a
manifest they are garbage.  The half-built manifest is next, so that a second attempt finds the checkpoint ids.  Then
the checkpoints, so that an initialized clone always pins what it borrows.  Then the WAL files.  The last write sets
``initialized``.  The range has steps of its own (``attempt_range``).

Source: docs/reference/protocol.md 10.2, 10.3, 11, 11.3.
"""

from dataclasses import replace
from functools import partial
from uuid import UUID

from shale.clones.attempt_range import AttemptRanges, attempt_of
from shale.clones.clone_manifest import Source, cloned
from shale.clones.database_catalog import DatabaseCatalog
from shale.clones.existing_clone import require_pinned, require_resumable, require_same_range, verify_existing
from shale.clones.own_ssts import store_own_ssts, with_distinct_ids
from shale.clones.ranges import common_range
from shale.clones.request import CloneRequest, CloneResult, check_request
from shale.clones.sources import resolve_source, with_checkpoint_ids
from shale.clones.union import unite
from shale.clones.wal_files import copy_files, require_complete_wal, wal_range
from shale.errors import ObjectVersionExists
from shale.protocol.checkpoints import create_checkpoint
from shale.protocol.manifest_store import ManifestStore, StoredManifest
from shale.protocol.markers import require_not_destroyed
from shale.protocol.transactional import Stored
from shale.protocol.versioned import Versioned
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.types import ExternalDb, Manifest

_ATTEMPTS_MAX = 4
"""A conflict means that another process started, finished or opened the clone; the next attempt sees that state."""
log = get_logger("clones")


async def create_clone(catalog: DatabaseCatalog, request: CloneRequest) -> CloneResult:
    """Create the clone, or complete one that an earlier call started; a complete one is left unchanged.

    Raises:
        IdenticalClonePaths, DuplicatedCloneSourcePath, InvalidUnionSetEmpty: see ``check_request``.
        LatestRecordMissing: there is no database at the path of a source.
        CheckpointMissing: a checkpoint is missing or has expired.
        AmbiguousCheckpoint: several checkpoints of a source have the name.
        InvalidDbState: a source is half built, destroyed or incomplete; or the clone was opened before it was complete,
            or shows other keys.
        CloneExternalDbMissing, CloneIncorrectExternalDbCheckpoint, CloneIncorrectFinalCheckpoint: there is another
            database at the path.
        InvalidCloneSourceWithWal, InvalidUnion, InvalidProjection: the sources cannot be projected or united like this.
    """
    check_request(request)
    request = await with_checkpoint_ids(catalog, request)
    ranges = AttemptRanges(catalog.store, request.path)
    for attempt in range(1, _ATTEMPTS_MAX + 1):
        try:
            return await _attempt(catalog, request, ranges)
        except ObjectVersionExists:
            if attempt == _ATTEMPTS_MAX:
                raise
    raise AssertionError("the last attempt returns or raises")


async def _attempt(catalog: DatabaseCatalog, request: CloneRequest, ranges: AttemptRanges) -> CloneResult:
    await require_not_destroyed(catalog.store, request.path)
    manifests = catalog.manifests(request.path)
    latest = await manifests.try_read_latest()
    if latest is None:
        return await _create(catalog, request, ranges, manifests)
    if not latest.value.initialized:
        return await _complete(catalog, request, ranges, Stored(manifests, latest, catalog.env))
    await ranges.remove_own()
    await verify_existing(catalog, latest.value, request)
    await require_same_range(catalog, request)
    await require_pinned(catalog, latest.value)
    return CloneResult(
        path=request.path, manifest_id=latest.id, is_new=False, checkpoints=_checkpoints(latest.value, request)
    )


async def _create(
    catalog: DatabaseCatalog, request: CloneRequest, ranges: AttemptRanges, manifests: ManifestStore
) -> CloneResult:
    resolved = [await resolve_source(catalog, request, source) for source in request.sources]
    sources = with_distinct_ids([each.source for each in resolved])
    first = await catalog.env.cpu.run(partial(_first_manifest, catalog, request, sources))
    await store_own_ssts(catalog, request.path, sources, [sst for each in resolved for sst in each.built], first)
    attempt = attempt_of(first) or catalog.env.ids.uuid()
    shown = await ranges.store(attempt, common_range([each.keys for each in resolved]))
    clone = await manifests.create_new(first)
    await ranges.publish(shown)
    finished = await _finish(catalog, request, clone)
    await ranges.remove_all()
    return replace(finished, wal_files_left_out=sum(each.wal_files_left_out for each in resolved))


async def _complete(
    catalog: DatabaseCatalog, request: CloneRequest, ranges: AttemptRanges, half_built: StoredManifest
) -> CloneResult:
    """Complete the clone of an attempt that was interrupted, or that another process makes at the same time."""
    attempt = attempt_of(half_built.value)
    await ranges.remove_own(keep=attempt)
    await require_resumable(catalog, request, half_built.current)
    shown = await ranges.read(attempt)
    await require_same_range(catalog, request, shown)
    if not request.is_union:
        await require_complete_wal(catalog.wal(request.sources[0].path), half_built.value)
    if shown is not None:
        await ranges.publish(shown)
    finished = await _finish(catalog, request, half_built)
    await ranges.remove_all()
    return finished


def _first_manifest(catalog: DatabaseCatalog, request: CloneRequest, sources: list[Source]) -> Manifest:
    new_uuid = catalog.env.ids.uuid
    if not request.is_union:
        return cloned(sources[0], new_uuid)
    return unite(sources, new_uuid, allow_gaps=request.allow_gaps, compact=request.compact_union)


async def _finish(catalog: DatabaseCatalog, request: CloneRequest, clone: StoredManifest) -> CloneResult:
    """Run steps 7 to 9 on version 1 of the clone's manifest."""
    half_built = clone.value
    for entry in half_built.external_dbs:
        await _pin(catalog, entry)
    copied = 0
    if not request.is_union:
        source, target = catalog.wal(request.sources[0].path), catalog.wal(request.path)
        copied = await copy_files(source, target, wal_range(half_built))
    finished = await clone.update(Versioned(1, replace(half_built, initialized=True)))
    for entry in half_built.external_dbs:
        final = str(entry.final_checkpoint_id)
        log.info(Event.CLONE_CREATED, path=request.path, parent_path=entry.path, final_checkpoint_id=final)
    return CloneResult(
        path=request.path,
        manifest_id=finished.id,
        is_new=True,
        checkpoints=_checkpoints(half_built, request),
        wal_files_copied=copied,
    )


async def _pin(catalog: DatabaseCatalog, entry: ExternalDb) -> None:
    """Create the clone's own checkpoint in a database that it borrows from, unless an earlier attempt has."""
    if entry.final_checkpoint_id is None:
        return
    stored = await catalog.load(entry.path)
    await create_checkpoint(
        stored,
        catalog.env,
        lifetime_ms=None,
        source=entry.source_checkpoint_id,
        id=entry.final_checkpoint_id,
    )


def _checkpoints(clone: Manifest, request: CloneRequest) -> tuple[UUID | None, ...]:
    by_path = {entry.path: entry.source_checkpoint_id for entry in clone.external_dbs}
    return tuple(by_path.get(source.path) for source in request.sources)
