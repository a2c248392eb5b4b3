"""Whether a clone that is there already is the one that was asked for (docs/protocol.md 10.2, steps 2 and 3)."""

from collections.abc import Iterable
from functools import partial

from shale.clones.clone_manifest import borrowings
from shale.clones.neighbours import Neighbours
from shale.clones.request import CloneRequest, CloneSource
from shale.clones.sourcing import find_again
from shale.clones.union import unite
from shale.errors import (
    CheckpointMissing,
    CloneExternalDbMissing,
    CloneIncorrectExternalDbCheckpoint,
    CloneIncorrectFinalCheckpoint,
    InvalidDbState,
    ManifestMissing,
)
from shale.protocol.versioned import Versioned
from shale.types import ExternalDb, Manifest, Ulid

_BEGIN_AGAIN = "destroy it (destroy --hard) and begin again"


async def attached(neighbours: Neighbours, clone: Manifest, request: CloneRequest) -> tuple[ExternalDb | None, ...]:
    """The entry of each source in the clone's manifest; ``None`` for one of several that has no SST of its own.

    Raises:
        CloneExternalDbMissing: the database is no clone.
        CloneIncorrectExternalDbCheckpoint: it is a clone of something else, or its sources have changed since.
        LatestRecordMissing, InvalidDbState, CheckpointMissing: see ``find_again``.
        InvalidUnion: the sources that are named cannot be united.
    """
    where = request.path or "/"
    if not clone.external_dbs:
        raise CloneExternalDbMissing(f"the database at {where} is no clone, or is detached from its sources")
    entries = tuple(_entry_of(clone, source) for source in request.sources)
    missing = next((source for source, entry in zip(request.sources, entries, strict=True) if entry is None), None)
    if missing is not None and not (request.is_union and await _is_union_of(neighbours, clone, request)):
        what = f"checkpoint {missing.checkpoint} of {missing.path}" if missing.checkpoint else missing.path
        raise CloneIncorrectExternalDbCheckpoint(f"the clone at {where} was not made of {what}")
    return entries


def _entry_of(clone: Manifest, source: CloneSource) -> ExternalDb | None:
    # The direct source stands behind those that it borrows from itself.
    for entry in reversed(clone.external_dbs):
        if entry.path == source.path and source.checkpoint in (None, entry.source_checkpoint_id):
            return entry
    return None


async def _is_union_of(neighbours: Neighbours, clone: Manifest, request: CloneRequest) -> bool:
    """Whether a clone is one of these sources, although not all of them are named in it: some only hand on SSTs.

    A half-built one has their trees.  Of one at work it is only known from whom it borrows.
    """
    found = [await find_again(neighbours, request, source) for source in request.sources]
    if _borrowed(clone.external_dbs) != _borrowed(entry for source in found for entry in borrowings(source)):
        return False
    if clone.initialized:
        return True
    work = partial(unite, found, neighbours.env.ids.uuid, allow_gaps=request.allow_gaps, compact=request.compact_union)
    united = await neighbours.env.cpu.run(work)
    return (united.tree, united.segments) == (clone.tree, clone.segments)


def _borrowed(entries: Iterable[ExternalDb]) -> set[tuple[str, Ulid]]:
    return {(entry.path, sst_id) for entry in entries for sst_id in entry.sst_ids}


async def require_pinned(neighbours: Neighbours, clone: Manifest) -> None:
    """Return if everybody that the clone borrows from holds its checkpoint.

    Raises:
        CloneIncorrectFinalCheckpoint: somebody does not.
    """
    for entry in clone.external_dbs:
        if entry.final_checkpoint_id is None:
            continue
        latest = await neighbours.manifests(entry.path).try_read_latest()
        if latest is None or latest.value.checkpoint(entry.final_checkpoint_id) is None:
            raise CloneIncorrectFinalCheckpoint(f"{entry.path} does not hold checkpoint {entry.final_checkpoint_id}")


async def require_same_beginning(neighbours: Neighbours, request: CloneRequest, clone: Versioned[Manifest]) -> None:
    """Return if a half-built clone can be finished: nobody has opened it, and it has the log of its source.

    Raises:
        InvalidDbState: it cannot.
        CheckpointMissing: the checkpoint that it was begun with is gone, and its own was not made yet.
        CloneExternalDbMissing, CloneIncorrectExternalDbCheckpoint, LatestRecordMissing: see ``attached``.
    """
    entries = await attached(neighbours, clone.value, request)
    if clone.id != 1:
        raise InvalidDbState(
            f"the clone at {request.path or '/'} was opened or sealed before it was finished; {_BEGIN_AGAIN}"
        )
    beginning = Manifest() if entries[0] is None or request.is_union else await _source_of(neighbours, entries[0])
    if _log_bounds(clone.value) != _log_bounds(beginning):
        raise InvalidDbState(f"the half-built clone at {request.path or '/'} has other sources; {_BEGIN_AGAIN}")


def _log_bounds(manifest: Manifest) -> tuple[int, int]:
    return manifest.replay_after_wal_id, manifest.next_wal_sst_id


async def _source_of(neighbours: Neighbours, entry: ExternalDb) -> Manifest:
    """The manifest that a clone was begun with."""
    stored = await neighbours.load(entry.path)
    checkpoint_id = entry.source_checkpoint_id
    if entry.final_checkpoint_id is not None and stored.value.checkpoint(entry.final_checkpoint_id) is not None:
        checkpoint_id = entry.final_checkpoint_id
    checkpoint = stored.value.checkpoint(checkpoint_id)
    if checkpoint is None or checkpoint.is_expired(neighbours.env.clock.now_ms()):
        raise CheckpointMissing(checkpoint_id)
    manifest = await neighbours.manifests(entry.path).read(checkpoint.manifest_id)
    if manifest is None:
        raise ManifestMissing(checkpoint.manifest_id)
    return manifest
