"""Check that an existing clone is the requested one.

Source: docs/reference/protocol.md 10.2, steps 2 and 3.
"""

from collections import Counter
from collections.abc import Iterable
from functools import partial

from shale.clones.clone_manifest import borrowings
from shale.clones.database_catalog import DatabaseCatalog
from shale.clones.own_ssts import with_distinct_ids
from shale.clones.request import CloneRequest, CloneSource
from shale.clones.sources import requested_range, reresolve
from shale.clones.union import unite
from shale.clones.wal_files import without_wal
from shale.errors import (
    CheckpointMissing,
    CloneExternalDbMissing,
    CloneIncorrectExternalDbCheckpoint,
    CloneIncorrectFinalCheckpoint,
    InvalidDbState,
    ManifestMissing,
)
from shale.format.names import visible_range_key
from shale.protocol.versioned import Versioned
from shale.protocol.visible_range import decode_visible_range
from shale.types import EVERYTHING, ExternalDb, KeyRange, Manifest, Ulid

_START_OVER = "destroy it (destroy --hard) and start over"


async def verify_existing(
    catalog: DatabaseCatalog, clone: Manifest, request: CloneRequest
) -> tuple[ExternalDb | None, ...]:
    """Return the entry of each source in the clone's manifest; ``None`` for a union's source without own SSTs.

    Raises:
        CloneExternalDbMissing: the database is not a clone.
        CloneIncorrectExternalDbCheckpoint: it is a clone of other sources, or its sources have changed since.
        LatestRecordMissing, InvalidDbState, CheckpointMissing: see ``reresolve``.
        InvalidUnion: the sources that are named cannot be united.
    """
    where = request.path or "/"
    if not clone.external_dbs:
        raise CloneExternalDbMissing(f"the database at {where} is no clone, or is detached from its sources")
    entries = tuple(_entry_of(clone, source) for source in request.sources)
    missing = next((source for source, entry in zip(request.sources, entries, strict=True) if entry is None), None)
    if missing is not None and not (request.is_union and await _is_union_of(catalog, clone, request)):
        what = f"checkpoint {missing.checkpoint} of {missing.path}" if missing.checkpoint else missing.path
        raise CloneIncorrectExternalDbCheckpoint(f"the clone at {where} was not made of {what}")
    return entries


def _entry_of(clone: Manifest, source: CloneSource) -> ExternalDb | None:
    # The entry of the direct source comes after those that it borrows from.
    for entry in reversed(clone.external_dbs):
        if entry.path == source.path and source.checkpoint in (None, entry.source_checkpoint_id):
            return entry
    return None


async def _is_union_of(catalog: DatabaseCatalog, clone: Manifest, request: CloneRequest) -> bool:
    """Return whether a clone is a union of these sources although it names only some: a source may have no own SSTs.

    A half-built clone still has the trees of the sources.  For an initialized one only the borrowed SSTs are compared.
    """
    found = with_distinct_ids([await reresolve(catalog, request, source) for source in request.sources])
    if _borrowed(clone.external_dbs) != _borrowed(entry for source in found for entry in borrowings(source)):
        return False
    if clone.initialized:
        return True
    work = partial(unite, found, catalog.env.ids.uuid, allow_gaps=request.allow_gaps, compact=request.compact_union)
    united = await catalog.env.cpu.run(work)
    return _borrowed_views(united) == _borrowed_views(clone)


def _borrowed_views(manifest: Manifest) -> Counter[tuple[bytes, Ulid, KeyRange | None]]:
    """Count the views of borrowed SSTs by tree; L0s that are made of a WAL have other ids in each attempt."""
    borrowed = {sst_id for _, sst_id in _borrowed(manifest.external_dbs)}
    return Counter(
        (prefix, view.sst.id, view.visible_range)
        for prefix, tree in manifest.trees()
        for view in tree.views()
        if view.sst.id in borrowed
    )


def _borrowed(entries: Iterable[ExternalDb]) -> set[tuple[str, Ulid]]:
    return {(entry.path, sst_id) for entry in entries for sst_id in entry.sst_ids}


async def require_pinned(catalog: DatabaseCatalog, clone: Manifest) -> None:
    """Check that each database that the clone borrows from holds the clone's checkpoint.

    Raises:
        CloneIncorrectFinalCheckpoint: one does not.
    """
    for entry in clone.external_dbs:
        if entry.final_checkpoint_id is None:
            continue
        latest = await catalog.manifests(entry.path).try_read_latest()
        if latest is None or latest.value.checkpoint(entry.final_checkpoint_id) is None:
            raise CloneIncorrectFinalCheckpoint(f"{entry.path} does not hold checkpoint {entry.final_checkpoint_id}")


async def require_resumable(catalog: DatabaseCatalog, request: CloneRequest, clone: Versioned[Manifest]) -> None:
    """Check that a half-built clone can be completed: it was never opened, and it has the log bounds of its source.

    Raises:
        InvalidDbState: it cannot be completed.
        CheckpointMissing: the source checkpoint is gone, and the clone's own one was not created yet.
        CloneExternalDbMissing, CloneIncorrectExternalDbCheckpoint, LatestRecordMissing: see ``verify_existing``.
    """
    entries = await verify_existing(catalog, clone.value, request)
    if clone.id != 1:
        raise InvalidDbState(
            f"the clone at {request.path or '/'} was opened or sealed before it was finished; {_START_OVER}"
        )
    initial = Manifest() if entries[0] is None or request.is_union else await _source_of(catalog, entries[0])
    expected = [_log_bounds(initial)]
    if not request.is_union and request.projects(request.sources[0]):
        expected.append(_log_bounds(without_wal(initial)))
    if _log_bounds(clone.value) not in expected:
        raise InvalidDbState(f"the half-built clone at {request.path or '/'} has other sources; {_START_OVER}")


def _log_bounds(manifest: Manifest) -> tuple[int, int]:
    return manifest.replay_after_wal_id, manifest.next_wal_sst_id


async def _source_of(catalog: DatabaseCatalog, entry: ExternalDb) -> Manifest:
    """Return the manifest of the source that the clone was started from."""
    stored = await catalog.load(entry.path)
    checkpoint_id = entry.source_checkpoint_id
    if entry.final_checkpoint_id is not None and stored.value.checkpoint(entry.final_checkpoint_id) is not None:
        checkpoint_id = entry.final_checkpoint_id
    checkpoint = stored.value.checkpoint(checkpoint_id)
    if checkpoint is None or checkpoint.is_expired(catalog.env.clock.now_ms()):
        raise CheckpointMissing(checkpoint_id)
    manifest = await catalog.manifests(entry.path).read(checkpoint.manifest_id)
    if manifest is None:
        raise ManifestMissing(checkpoint.manifest_id)
    return manifest


async def require_same_range(catalog: DatabaseCatalog, request: CloneRequest, stored: bytes | None = None) -> None:
    """Check that a clone shows the keys that are requested.

    Earlier releases stored the range of projected clones only: the range of one without the object is not checked.

    Args:
        stored: what the attempt of a half-built clone has stored; by default the range of the clone counts.

    Raises:
        InvalidDbState: it shows others.
        CorruptionError: its range cannot be decoded.
    """
    key = visible_range_key(request.path)
    if stored is None:
        found = await catalog.store.get(key)
        if found is None:
            return
        stored = bytes(found.data)
    shown = decode_visible_range(stored, path=key)
    wanted = await requested_range(catalog, request) or EVERYTHING
    if shown != wanted:
        raise InvalidDbState(f"the clone at {request.path or '/'} shows {shown}, not {wanted}: {_START_OVER}")
