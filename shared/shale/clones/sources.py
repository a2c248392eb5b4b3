"""Resolve the sources of a clone to checkpoints and manifests.

Source: docs/reference/protocol.md 10.2, steps 4 and 5.
"""

from dataclasses import replace
from functools import partial
from uuid import UUID

from shale.clones.clone_manifest import Source
from shale.clones.database_catalog import DatabaseCatalog
from shale.clones.own_ssts import BuiltSst, with_wal_in_l0
from shale.clones.projection import project
from shale.clones.ranges import common_range
from shale.clones.request import CloneRequest, CloneSource
from shale.clones.wal_files import files_left_out, require_complete_wal
from shale.core.lazy_dataclass import dataclass
from shale.errors import CheckpointMissing, InvalidDbState, ManifestMissing
from shale.protocol.checkpoints import create_checkpoint, parse_checkpoint_id, resolve_checkpoint
from shale.protocol.manifest_store import StoredManifest
from shale.protocol.visible_range import read_visible_range
from shale.protocol.wal_completeness import require_wal_store
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.types import EVERYTHING, Checkpoint, KeyRange, Manifest

EPHEMERAL_LIFETIME_MS = 300_000
"""Lifetime of the temporary source checkpoint, within which an interrupted clone can be completed."""
_NOT_PINNED = UUID(int=0)
log = get_logger("clones")


@dataclass(frozen=True, slots=True)
class ResolvedSource:
    """A source as a clone takes it.

    Args:
        wal_files_left_out: the number of WAL files with rows that the clone leaves out.
        built: SSTs for the clone with the rows of the other WAL files.
        keys: the keys that the clone may take over; ``None``: all.
    """

    source: Source
    wal_files_left_out: int
    built: tuple[BuiltSst, ...] = ()
    keys: KeyRange | None = None


async def with_checkpoint_ids(catalog: DatabaseCatalog, request: CloneRequest) -> CloneRequest:
    """Return the request with checkpoint ids instead of names: a clone's manifest stores ids.

    Raises:
        LatestRecordMissing: there is no database at the path of a source.
        CheckpointMissing: no checkpoint of a source has the name.
        AmbiguousCheckpoint: several have it.
    """
    return replace(request, sources=[await _with_id(catalog, source) for source in request.sources])


async def _with_id(catalog: DatabaseCatalog, source: CloneSource) -> CloneSource:
    if not isinstance(source.checkpoint, str):
        return source
    stored = await catalog.load(source.path)
    try:
        found = resolve_checkpoint(stored.value, source.checkpoint, catalog.env.clock.now_ms(), expired_too=True)
    except CheckpointMissing:
        # A clone of it may exist nevertheless.
        known = parse_checkpoint_id(source.checkpoint)
        if known is None:
            raise
        return replace(source, checkpoint=known)
    return replace(source, checkpoint=found.id)


async def resolve_source(catalog: DatabaseCatalog, request: CloneRequest, source: CloneSource) -> ResolvedSource:
    """Read the manifest of a source at its checkpoint, or create a temporary checkpoint.

    Raises:
        LatestRecordMissing: there is no database.
        InvalidDbState: it is half built, being destroyed or not complete, or its WAL store was not given.
        CheckpointMissing: the checkpoint does not exist or has expired.
        InvalidCloneSourceWithWal: see ``with_wal_in_l0``; only if the source is projected or united.
        InvalidProjection: see ``project``.
    """
    stored = await catalog.load(source.path)
    require_wal_store(stored.value, source.path, catalog.wal_store)
    wal = catalog.wal(source.path)
    left_out = 0
    if source.checkpoint is None:
        left_out = await files_left_out(wal, stored.value, catalog.env)
        _check_completeness(request, source, left_out)
        checkpoint = await create_checkpoint(stored, catalog.env, lifetime_ms=EPHEMERAL_LIFETIME_MS)
        manifest = await _read(stored, checkpoint)
    else:
        checkpoint = resolve_checkpoint(stored.value, source.checkpoint, catalog.env.clock.now_ms())
        manifest = await _read(stored, checkpoint)
        left_out = await files_left_out(wal, manifest, catalog.env, await _written_ms(catalog, stored, checkpoint))
        _check_completeness(request, source, left_out)
    await require_complete_wal(wal, manifest)
    built: tuple[BuiltSst, ...] = ()
    if request.is_union or request.projects(source):
        manifest, built = await with_wal_in_l0(wal, manifest, source.path, catalog.env)
    found = await _projected(catalog, request, source, checkpoint.id, manifest)
    keys = await _visible_range(catalog, request, source)
    return ResolvedSource(replace(found, own={sst.id: "" for sst in built}), left_out, built, keys)


async def requested_range(catalog: DatabaseCatalog, request: CloneRequest) -> KeyRange | None:
    """Return the keys that a new clone would show; ``None``: all."""
    return common_range([await _visible_range(catalog, request, source) for source in request.sources])


async def _visible_range(catalog: DatabaseCatalog, request: CloneRequest, source: CloneSource) -> KeyRange | None:
    """Return the keys that are taken of a source, which may be a projected clone itself."""
    stored, taken = await read_visible_range(catalog.store, source.path), request.keys_of(source)
    return stored if taken is None else taken.intersect(stored or EVERYTHING)


async def reresolve(catalog: DatabaseCatalog, request: CloneRequest, source: CloneSource) -> Source:
    """Read the manifest of a source as it is now, or at the given checkpoint; nothing is written.

    Raises:
        LatestRecordMissing, InvalidDbState, CheckpointMissing, InvalidProjection: see ``resolve_source``.
    """
    stored = await catalog.load(source.path)
    if source.checkpoint is None:
        return await _projected(catalog, request, source, _NOT_PINNED, stored.value)
    checkpoint = resolve_checkpoint(stored.value, source.checkpoint, catalog.env.clock.now_ms())
    return await _projected(catalog, request, source, checkpoint.id, await _read(stored, checkpoint))


async def _projected(
    catalog: DatabaseCatalog, request: CloneRequest, source: CloneSource, checkpoint_id: UUID, manifest: Manifest
) -> Source:
    cut = partial(
        project,
        manifest,
        request.keys_of(source),
        segments=request.segments,
        segment_ranges=request.segment_ranges,
    )
    projected = await catalog.env.cpu.run(cut)
    return Source(path=source.path, checkpoint_id=checkpoint_id, manifest=projected, named_range=source.keys)


async def _read(stored: StoredManifest, checkpoint: Checkpoint) -> Manifest:
    manifest = await stored.store.read(checkpoint.manifest_id)
    if manifest is None:
        raise ManifestMissing(checkpoint.manifest_id)
    return manifest


async def _written_ms(catalog: DatabaseCatalog, stored: StoredManifest, checkpoint: Checkpoint) -> int:
    """Return when the checkpoint's manifest was stored, by the store's clock, which also dates WAL files.

    The checkpoint has its creation time in seconds only, too coarse to order it with WAL files.
    """
    meta = await catalog.store.head(stored.store.namespace.key(checkpoint.manifest_id))
    if meta is None:
        raise ManifestMissing(checkpoint.manifest_id)
    return meta.last_modified_ms


def _check_completeness(request: CloneRequest, source: CloneSource, left_out: int) -> None:
    if not left_out:
        return
    if not request.allow_wal_gap:
        raise InvalidDbState(
            f"the WAL of {source.path or '/'} holds {left_out} file{'s' if left_out > 1 else ''} of rows that a clone "
            "would lack: take a checkpoint through its writer, open and close it first, or allow the gap "
            "(allow_wal_gap)"
        )
    log.warning(Event.CLONE_INCOMPLETE, path=source.path, clone_path=request.path, wal_files=left_out)
