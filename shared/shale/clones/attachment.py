"""Whether a clone that is there already is the one that was asked for (docs/protocol.md 10.2, steps 2 and 3)."""

from shale.clones.neighbours import Neighbours
from shale.clones.request import CloneRequest, CloneSource
from shale.errors import (
    CheckpointMissing,
    CloneExternalDbMissing,
    CloneIncorrectExternalDbCheckpoint,
    CloneIncorrectFinalCheckpoint,
    InvalidDbState,
    ManifestMissing,
)
from shale.protocol.versioned import Versioned
from shale.types import ExternalDb, Manifest

_BEGIN_AGAIN = "destroy it (destroy --hard) and begin again"


def attached(clone: Manifest, request: CloneRequest) -> tuple[ExternalDb, ...]:
    """The entry of each source in the clone's manifest.

    Raises:
        CloneExternalDbMissing: the database is no clone.
        CloneIncorrectExternalDbCheckpoint: it is a clone of something else.
    """
    return tuple(_entry_of(clone, source, request.path) for source in request.sources)


def _entry_of(clone: Manifest, source: CloneSource, path: str) -> ExternalDb:
    if not clone.external_dbs:
        raise CloneExternalDbMissing(f"the database at {path or '/'} is no clone, or is detached from its sources")
    # The direct source stands behind those that it borrows from itself.
    for entry in reversed(clone.external_dbs):
        if entry.path == source.path and source.checkpoint in (None, entry.source_checkpoint_id):
            return entry
    what = source.path if source.checkpoint is None else f"checkpoint {source.checkpoint} of {source.path}"
    raise CloneIncorrectExternalDbCheckpoint(f"the clone at {path or '/'} was not made of {what}")


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
        CloneExternalDbMissing, CloneIncorrectExternalDbCheckpoint: see ``attached``.
    """
    entries = attached(clone.value, request)
    if clone.id != 1:
        raise InvalidDbState(
            f"the clone at {request.path or '/'} was opened or sealed before it was finished; {_BEGIN_AGAIN}"
        )
    beginning = Manifest() if request.is_union else await _source_of(neighbours, entries[0])
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
