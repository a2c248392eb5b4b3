"""Cloning: a new database that uses the SSTs of others where they are.

The order of the steps is what makes every one of them safe to die after.  The half-built manifest comes first, so that
a second attempt finds the ids of the checkpoints; then the checkpoints, so that a clone which is initialised always
holds what it borrows; then the WAL; the manifest says so at the very end.

Source: docs/protocol.md 10.2, 10.3, 11.3.
"""

from dataclasses import replace
from functools import partial
from uuid import UUID

from shale.clones.attachment import attached, require_pinned, require_same_beginning
from shale.clones.clone_manifest import cloned
from shale.clones.neighbours import Neighbours
from shale.clones.request import CloneRequest, CloneResult, check_request
from shale.clones.sourcing import Sourced, find_source, with_ids
from shale.clones.union import unite
from shale.clones.wal_files import copy_files, require_known_files, wal_range
from shale.errors import ObjectVersionExists
from shale.protocol.checkpoints import create_checkpoint
from shale.protocol.manifest_store import StoredManifest
from shale.protocol.markers import require_not_destroyed
from shale.protocol.transactional import Stored
from shale.protocol.versioned import Versioned
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.types import ExternalDb, Manifest

_ATTEMPTS_MAX = 4
"""The second attempt meets what stopped the first: a clone that somebody else has begun, finished or opened."""
log = get_logger("clones")


async def create_clone(neighbours: Neighbours, request: CloneRequest) -> CloneResult:
    """Make the clone, or finish what an earlier call has begun; a finished one is left as it is.

    Raises:
        IdenticalClonePaths, DuplicatedCloneSourcePath, InvalidUnionSetEmpty: see ``check_request``.
        LatestRecordMissing: a source is no database.
        CheckpointMissing: a checkpoint is not there or has expired; a fresh attempt at another path may work.
        AmbiguousCheckpoint: several checkpoints of a source have the name.
        InvalidDbState: a source is half built, destroyed or incomplete; or somebody has opened the clone too early.
        CloneExternalDbMissing, CloneIncorrectExternalDbCheckpoint, CloneIncorrectFinalCheckpoint: another database is
            at the path.
        InvalidCloneSourceWithWal, InvalidUnion, InvalidProjection: the sources cannot be cut or united like this.
    """
    check_request(request)
    request = await with_ids(neighbours, request)
    for attempt in range(1, _ATTEMPTS_MAX + 1):
        try:
            return await _attempt(neighbours, request)
        except ObjectVersionExists:
            if attempt == _ATTEMPTS_MAX:
                raise
    raise AssertionError("the last attempt returns or raises")


async def _attempt(neighbours: Neighbours, request: CloneRequest) -> CloneResult:
    await require_not_destroyed(neighbours.store, request.path)
    manifests = neighbours.manifests(request.path)
    latest = await manifests.try_read_latest()
    if latest is None:
        sourced = [await find_source(neighbours, request, source) for source in request.sources]
        first = await neighbours.env.cpu.run(partial(_first_manifest, neighbours, request, sourced))
        clone = await manifests.create_new(first)
        left_out = sum(each.wal_files_left_out for each in sourced)
    elif latest.value.initialized:
        await attached(neighbours, latest.value, request)
        await require_pinned(neighbours, latest.value)
        return CloneResult(
            path=request.path, manifest_id=latest.id, is_new=False, checkpoints=_checkpoints(latest.value, request)
        )
    else:
        await require_same_beginning(neighbours, request, latest)
        if not request.is_union:
            await require_known_files(neighbours.wal(request.sources[0].path), latest.value)
        clone = Stored(manifests, latest, neighbours.env)
        left_out = 0
    return replace(await _finish(neighbours, request, clone), wal_files_left_out=left_out)


def _first_manifest(neighbours: Neighbours, request: CloneRequest, sourced: list[Sourced]) -> Manifest:
    new_uuid = neighbours.env.ids.uuid
    if not request.is_union:
        return cloned(sourced[0].source, new_uuid)
    sources = [each.source for each in sourced]
    return unite(sources, new_uuid, allow_gaps=request.allow_gaps, compact=request.compact_union)


async def _finish(neighbours: Neighbours, request: CloneRequest, clone: StoredManifest) -> CloneResult:
    """Steps 7 to 9, on version 1."""
    half_built = clone.value
    for entry in half_built.external_dbs:
        await _pin(neighbours, entry)
    copied = 0
    if not request.is_union:
        source, target = neighbours.wal(request.sources[0].path), neighbours.wal(request.path)
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


async def _pin(neighbours: Neighbours, entry: ExternalDb) -> None:
    """Make the clone's own checkpoint in a database that it borrows from; it may be there from an earlier attempt."""
    if entry.final_checkpoint_id is None:
        return
    stored = await neighbours.load(entry.path)
    await create_checkpoint(
        stored,
        neighbours.env,
        lifetime_ms=None,
        source=entry.source_checkpoint_id,
        id=entry.final_checkpoint_id,
    )


def _checkpoints(clone: Manifest, request: CloneRequest) -> tuple[UUID | None, ...]:
    by_path = {entry.path: entry.source_checkpoint_id for entry in clone.external_dbs}
    return tuple(by_path.get(source.path) for source in request.sources)
