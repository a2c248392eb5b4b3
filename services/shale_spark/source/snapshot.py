"""The state that a read sees, and the checkpoint that keeps it (docs/reference/protocol.md 5 and 9).

A checkpoint that is made for a query has the name ``NAME``.  Queries share it while the database does not change, and
renew it while their tasks run.  No process knows when the last of them has ended, so it expires.
"""

from uuid import UUID

from shale.core.lazy_dataclass import dataclass
from shale.engine.location import DatabaseLocation, DatabaseStores
from shale.env import Env
from shale.errors import (
    CheckpointMissing,
    InvalidDbState,
    LatestRecordMissing,
    ManifestMissing,
    NotFoundError,
    UnavailableError,
)
from shale.protocol.checkpoints import (
    create_checkpoint,
    list_checkpoints,
    release_checkpoints,
    renew_checkpoint,
    resolve_checkpoint,
)
from shale.protocol.manifest_store import StoredManifest
from shale.protocol.markers import require_not_destroyed
from shale.protocol.wal_completeness import require_wal_store
from shale.protocol.wal_store import WalStore
from shale.types import Checkpoint, Manifest
from shale_spark.source.manifests import manifests_of
from shale_spark.source.read_plan import ReadLease, WalFileRange

NAME = "shale-spark-read"
"""The name of checkpoints that queries share."""
OWN_NAME = "shale-spark-export"
"""The name of checkpoints that belong to one piece of work, which deletes them."""

_ATTEMPTS_MAX = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSnapshot:
    """A state, its lease, and the WAL files whose rows belong to it (``None``: there are none)."""

    manifest: Manifest
    lease: ReadLease
    wal: WalFileRange | None


class SnapshotLost(NotFoundError):
    """The checkpoint of a query has expired or was deleted."""


async def open_manifest(stores: DatabaseStores, where: DatabaseLocation, env: Env) -> StoredManifest:
    """Load the newest manifest of a readable database.

    Raises:
        LatestRecordMissing: there is no database; names the location.
        InvalidDbState: it is incomplete or destroyed.
        InvalidRequestError: its WAL is in another store, which was not named.
    """
    await require_not_destroyed(stores.main, where.root)
    try:
        stored = await manifests_of(stores, where.root, env).load()
    except LatestRecordMissing as error:
        # The engine names only the path, and a wrong store is as likely.
        raise LatestRecordMissing(f"{show_location(where)}: {error}") from error
    if not stored.value.initialized:
        raise InvalidDbState(f"{show_location(where)} is not initialised: a clone that was not completed")
    require_wal_store(stored.value, show_location(where), where.wal_store)
    return stored


async def take_snapshot(
    stores: DatabaseStores,
    where: DatabaseLocation,
    env: Env,
    *,
    checkpoint: UUID | str | None,
    lifetime_ms: int,
    is_shared: bool = True,
) -> SparkSnapshot:
    """Return the state of a checkpoint, or the newest state under a checkpoint that lives for ``lifetime_ms``.

    The newest state includes the current WAL; a named checkpoint includes the WAL files of its manifest.

    Args:
        stores, where, env: the database, and clock, randomness and ids.
        checkpoint: the id or name of the checkpoint to read.
        lifetime_ms: of a checkpoint that is made here.
        is_shared: whether an earlier query's checkpoint may serve; then it must not be deleted.

    Raises:
        CheckpointMissing: it is not listed, or has expired.
        AmbiguousCheckpoint: several have that name.
        ManifestMissing: its version is gone.
        UnavailableError: flushes came in between too often.
    """
    stored = await open_manifest(stores, where, env)
    if checkpoint is not None:
        found = resolve_checkpoint(stored.value, checkpoint, env.clock.now_ms())
        manifest = await _version(stored, found)
        lease = ReadLease(checkpoint_id=found.id, expire_s=found.expire_s)
        return SparkSnapshot(manifest=manifest, lease=lease, wal=_span(manifest, manifest.next_wal_sst_id - 1))
    for _ in range(_ATTEMPTS_MAX):
        snapshot = await _newest(stored, stores, where, env, lifetime_ms, is_shared=is_shared)
        if snapshot is not None:
            return snapshot
    raise UnavailableError(f"{show_location(where)} is flushed faster than its newest state can be found")


async def _newest(
    stored: StoredManifest,
    stores: DatabaseStores,
    where: DatabaseLocation,
    env: Env,
    lifetime_ms: int,
    *,
    is_shared: bool,
) -> SparkSnapshot | None:
    """Return the newest state under a checkpoint; ``None`` if a flush came in between.

    After a flush, WAL files may have been collected, so the end of the WAL that was found may be too low.
    """
    if is_shared:
        checkpoint = await _shared_checkpoint(stored, env, lifetime_ms)
    else:
        checkpoint = await create_checkpoint(stored, env, lifetime_ms=lifetime_ms, name=OWN_NAME)
    manifest = await _version(stored, checkpoint)
    wal = WalStore(stores.wal or stores.main, where.root, transformer=where.block_transformer)
    # Files that the manifest knows must exist, and replay reports a missing one; a search would take it for the end.
    known_id = manifest.next_wal_sst_id - 1
    found_id = await wal.last_seen_wal_id(manifest.replay_after_wal_id, has_gaps=manifest.has_parallel_wal)
    last_id = max(known_id, found_id)
    latest = (await stored.refresh()).value
    if latest.replay_after_wal_id != manifest.replay_after_wal_id:
        if not is_shared:
            await release_checkpoints(stored, [checkpoint.id])
        return None
    lease = ReadLease(checkpoint_id=checkpoint.id, expire_s=checkpoint.expire_s, lifetime_ms=lifetime_ms)
    return SparkSnapshot(manifest=manifest, lease=lease, wal=_span(manifest, last_id))


def require_live_checkpoint(manifest: Manifest, checkpoint_id: UUID, now_ms: int) -> Checkpoint:
    """Return a checkpoint that still protects its state.

    Raises:
        CheckpointMissing: the manifest does not list it, or its lifetime is over.
    """
    return resolve_checkpoint(manifest, checkpoint_id, now_ms)


def show_location(where: DatabaseLocation) -> str:
    """Return the location of a database for a message."""
    store = where.store if isinstance(where.store, str) else "the store"
    return f"{store.rstrip('/')}/{where.root}"


async def _shared_checkpoint(stored: StoredManifest, env: Env, lifetime_ms: int) -> Checkpoint:
    """Return the checkpoint of an earlier query, renewed if due, or a new one if the database has changed since."""
    return await _reused_checkpoint(stored, env, lifetime_ms) or await create_checkpoint(
        stored, env, lifetime_ms=lifetime_ms, name=NAME
    )


async def _reused_checkpoint(stored: StoredManifest, env: Env, lifetime_ms: int) -> Checkpoint | None:
    now_ms = env.clock.now_ms()
    ours = [each for each in list_checkpoints(stored.value, NAME) if not each.is_expired(now_ms) and each.expire_s]
    newest = max(ours, key=lambda each: each.manifest_id, default=None)
    if newest is None:
        return None
    pinned = await stored.store.read(newest.manifest_id)
    if pinned is None or _state(pinned) != _state(stored.value):
        return None
    if newest.expire_s * 1000 - now_ms >= lifetime_ms // 2:
        return newest
    try:
        return await renew_checkpoint(stored, env, newest.id, lifetime_ms=lifetime_ms)
    except CheckpointMissing:
        return None


async def _version(stored: StoredManifest, checkpoint: Checkpoint) -> Manifest:
    if stored.id == checkpoint.manifest_id:
        return stored.value
    manifest = await stored.store.read(checkpoint.manifest_id)
    if manifest is None:
        raise ManifestMissing(checkpoint.manifest_id)
    return manifest


def _state(manifest: Manifest) -> tuple[object, ...]:
    """Return the parts of a manifest that a read depends on."""
    return (
        manifest.tree,
        manifest.segments,
        manifest.last_l0_seq,
        manifest.replay_after_wal_id,
        manifest.external_dbs,
    )


def _span(manifest: Manifest, last_id: int) -> WalFileRange | None:
    first_id = manifest.replay_after_wal_id + 1
    return WalFileRange(first_id=first_id, last_id=last_id) if last_id >= first_id else None
