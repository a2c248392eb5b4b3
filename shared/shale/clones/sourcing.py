"""The sources of a new clone: their checkpoints, and what they show there (docs/protocol.md 10.2, steps 4 and 5)."""

from dataclasses import dataclass, replace
from functools import partial
from uuid import UUID

from shale.clones.clone_manifest import Source
from shale.clones.neighbours import Neighbours
from shale.clones.projection import project
from shale.clones.request import CloneRequest, CloneSource
from shale.clones.wal_files import files_left_out, require_known_files, require_no_rows
from shale.errors import CheckpointMissing, InvalidDbState, ManifestMissing
from shale.protocol.checkpoint_names import id_in, named_checkpoint
from shale.protocol.checkpoints import create_checkpoint
from shale.protocol.manifest_store import StoredManifest
from shale.protocol.wal_place import require_wal_place
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.types import Checkpoint, Manifest

EPHEMERAL_LIFETIME_MS = 300_000
"""As long an interrupted clone can be finished whose source no user has pinned."""
_NOT_PINNED = UUID(int=0)
log = get_logger("clones")


@dataclass(frozen=True, slots=True)
class Sourced:
    """A source, and how many files of its WAL it leaves out."""

    source: Source
    wal_files_left_out: int


async def with_ids(neighbours: Neighbours, request: CloneRequest) -> CloneRequest:
    """The request with ids for the names of checkpoints: a clone remembers ids, and is compared with them.

    Raises:
        LatestRecordMissing: a source is no database.
        CheckpointMissing: no checkpoint of a source has the name.
        AmbiguousCheckpoint: several have it.
    """
    return replace(request, sources=[await _with_id(neighbours, source) for source in request.sources])


async def _with_id(neighbours: Neighbours, source: CloneSource) -> CloneSource:
    if not isinstance(source.checkpoint, str):
        return source
    stored = await neighbours.load(source.path)
    try:
        found = named_checkpoint(stored.value, source.checkpoint, neighbours.env.clock.now_ms(), expired_too=True)
    except CheckpointMissing:
        # A clone that was made of it may be there all the same.
        known = id_in(source.checkpoint)
        if known is None:
            raise
        return replace(source, checkpoint=known)
    return replace(source, checkpoint=found.id)


async def find_source(neighbours: Neighbours, request: CloneRequest, source: CloneSource) -> Sourced:
    """Pin a source, if its user has not, and read what it shows.

    Raises:
        LatestRecordMissing: there is no database.
        InvalidDbState: it is half built or being destroyed, incomplete and must not be, or its WAL is elsewhere.
        CheckpointMissing: the checkpoint is not there, or has expired.
        InvalidCloneSourceWithWal: it has rows in its WAL, and they cannot be taken.
        InvalidProjection: see ``project``.
    """
    stored = await neighbours.load(source.path)
    require_wal_place(stored.value, source.path, is_named=neighbours.wal_store is not None)
    wal = neighbours.wal(source.path)
    left_out = 0
    if source.checkpoint is None:
        left_out = await files_left_out(wal, stored.value)
        _tell(request, source, left_out)
        checkpoint = await create_checkpoint(stored, neighbours.env, lifetime_ms=EPHEMERAL_LIFETIME_MS)
        manifest = await _read(stored, checkpoint)
    else:
        checkpoint = named_checkpoint(stored.value, source.checkpoint, neighbours.env.clock.now_ms())
        manifest = await _read(stored, checkpoint)
        left_out = await files_left_out(wal, manifest, await _written_ms(neighbours, stored, checkpoint))
        _tell(request, source, left_out)
    await require_known_files(wal, manifest)
    if request.is_union or request.projects(source):
        await require_no_rows(wal, manifest, source.path)
    return Sourced(await _projected(neighbours, request, source, checkpoint.id, manifest), left_out)


async def find_again(neighbours: Neighbours, request: CloneRequest, source: CloneSource) -> Source:
    """What a source shows now, or at the checkpoint that was named; nothing is written.

    Raises:
        LatestRecordMissing, InvalidDbState, CheckpointMissing, InvalidProjection: see ``find_source``.
    """
    stored = await neighbours.load(source.path)
    if source.checkpoint is None:
        return await _projected(neighbours, request, source, _NOT_PINNED, stored.value)
    checkpoint = named_checkpoint(stored.value, source.checkpoint, neighbours.env.clock.now_ms())
    return await _projected(neighbours, request, source, checkpoint.id, await _read(stored, checkpoint))


async def _projected(
    neighbours: Neighbours, request: CloneRequest, source: CloneSource, checkpoint_id: UUID, manifest: Manifest
) -> Source:
    cut = partial(
        project,
        manifest,
        request.keys_of(source),
        segments=request.segments,
        segment_ranges=request.segment_ranges,
    )
    projected = await neighbours.env.cpu.run(cut)
    return Source(path=source.path, checkpoint_id=checkpoint_id, manifest=projected, named_range=source.keys)


async def _read(stored: StoredManifest, checkpoint: Checkpoint) -> Manifest:
    manifest = await stored.store.read(checkpoint.manifest_id)
    if manifest is None:
        raise ManifestMissing(checkpoint.manifest_id)
    return manifest


async def _written_ms(neighbours: Neighbours, stored: StoredManifest, checkpoint: Checkpoint) -> int:
    """When the version that a checkpoint names came into the store, by whose clock WAL files have their age, too.

    The checkpoint itself knows it by the second: of files in the last one it could not be said which came first.
    """
    meta = await neighbours.store.head(stored.store.namespace.key(checkpoint.manifest_id))
    if meta is None:
        raise ManifestMissing(checkpoint.manifest_id)
    return meta.last_modified_ms


def _tell(request: CloneRequest, source: CloneSource, left_out: int) -> None:
    if not left_out:
        return
    if request.require_complete:
        raise InvalidDbState(
            f"the WAL of {source.path or '/'} holds {left_out} file{'s' if left_out > 1 else ''} of rows that a clone "
            "would lack: take a checkpoint through its writer, or open and close it first"
        )
    log.warning(Event.CLONE_INCOMPLETE, path=source.path, clone_path=request.path, wal_files=left_out)
