"""The state that a read sees, and the checkpoint that keeps it (docs/protocol.md 5 and 9).

A checkpoint that is made for a query has the name ``NAME``.  Queries share it while the database does not change, and
renew it while their tasks run; nobody can tell when the last of them has ended, so it expires.
"""

from dataclasses import dataclass
from uuid import UUID

from shale.engine.where import Stores, Where
from shale.env import Env
from shale.errors import (
    CheckpointMissing,
    InvalidDbState,
    LatestRecordMissing,
    ManifestMissing,
    NotFoundError,
    UnavailableError,
)
from shale.protocol.checkpoint_names import named_checkpoint
from shale.protocol.checkpoints import create_checkpoint, list_checkpoints, release_checkpoints, renew_checkpoint
from shale.protocol.manifest_store import ManifestStore, StoredManifest
from shale.protocol.markers import require_not_destroyed
from shale.protocol.wal_place import require_wal_place
from shale.protocol.wal_store import WalStore
from shale.types import Checkpoint, Manifest
from shale_spark.source.plan import Lease, WalSpan

NAME = "shale-spark-read"
"""What checkpoints are called that queries share."""
OWN_NAME = "shale-spark-export"
"""What checkpoints are called that belong to one piece of work, which deletes them."""

_ATTEMPTS_MAX = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A state, what protects it, and the WAL files whose rows belong to it (``None``: there are none)."""

    manifest: Manifest
    lease: Lease
    wal: WalSpan | None


class SnapshotLost(NotFoundError):
    """The state that a query reads is protected no more: its checkpoint has expired or was deleted."""


async def open_manifest(stores: Stores, where: Where, env: Env) -> StoredManifest:
    """The newest manifest of a database that can be read.

    Raises:
        LatestRecordMissing: there is no database; names the place.
        InvalidDbState: it is half built or destroyed.
        InvalidRequestError: its WAL is elsewhere, and nobody said where.
    """
    await require_not_destroyed(stores.main, where.root)
    try:
        stored = await ManifestStore(stores.main, where.root, env).load()
    except LatestRecordMissing as error:
        # The engine knows the path only, and a wrong store is as likely.
        raise LatestRecordMissing(f"{place_of(where)}: {error}") from error
    if not stored.value.initialized:
        raise InvalidDbState(f"{place_of(where)} is not initialised: a clone that was not completed")
    require_wal_place(stored.value, place_of(where), is_named=where.wal_store is not None)
    return stored


async def take_snapshot(
    stores: Stores, where: Where, env: Env, *, checkpoint: UUID | str | None, lifetime_ms: int, is_shared: bool = True
) -> Snapshot:
    """The state of a checkpoint, or without one the newest state under a checkpoint that lives for ``lifetime_ms``.

    The newest state includes what the WAL holds now; a checkpoint that was given includes what it was made of.

    Args:
        stores, where, env: the database, and the outside world.
        checkpoint: what to read, an id or a name.
        lifetime_ms: of a checkpoint that is made here.
        is_shared: whether that may be the checkpoint of an earlier query; nobody may delete it then.

    Raises:
        CheckpointMissing: it is not listed, or has expired.
        AmbiguousCheckpoint: several have that name.
        ManifestMissing: its version is gone.
        UnavailableError: flush after flush came in between.
    """
    stored = await open_manifest(stores, where, env)
    if checkpoint is not None:
        found = named_checkpoint(stored.value, checkpoint, env.clock.now_ms())
        manifest = await _version(stored, found)
        lease = Lease(checkpoint_id=found.id, expire_s=found.expire_s)
        return Snapshot(manifest=manifest, lease=lease, wal=_span(manifest, manifest.next_wal_sst_id - 1))
    for _ in range(_ATTEMPTS_MAX):
        snapshot = await _newest(stored, stores, where, env, lifetime_ms, is_shared=is_shared)
        if snapshot is not None:
            return snapshot
    raise UnavailableError(f"{place_of(where)} is flushed faster than its newest state can be found")


async def _newest(
    stored: StoredManifest, stores: Stores, where: Where, env: Env, lifetime_ms: int, *, is_shared: bool
) -> Snapshot | None:
    """The newest state under a checkpoint; ``None`` if the database was flushed while the end of its WAL was sought.

    Then files of the WAL may have been collected, and the end that was found may lie before theirs.
    """
    if is_shared:
        checkpoint = await _shared_checkpoint(stored, env, lifetime_ms)
    else:
        checkpoint = await create_checkpoint(stored, env, lifetime_ms=lifetime_ms, name=OWN_NAME)
    manifest = await _version(stored, checkpoint)
    wal = WalStore(stores.wal or stores.main, where.root, env, transformer=where.block_transformer)
    # Files that the manifest knows of have to be there, or replay tells; a search would take their absence for the end.
    known_id = manifest.next_wal_sst_id - 1
    last_id = max(known_id, await wal.last_seen_wal_id(manifest.replay_after_wal_id))
    latest = (await stored.refresh()).value
    if latest.replay_after_wal_id != manifest.replay_after_wal_id:
        if not is_shared:
            await release_checkpoints(stored, [checkpoint.id])
        return None
    lease = Lease(checkpoint_id=checkpoint.id, expire_s=checkpoint.expire_s, lifetime_ms=lifetime_ms)
    return Snapshot(manifest=manifest, lease=lease, wal=_span(manifest, last_id))


def listed(manifest: Manifest, checkpoint_id: UUID, now_ms: int) -> Checkpoint:
    """A checkpoint that still protects something.

    Raises:
        CheckpointMissing: the manifest does not list it, or its lifetime is over.
    """
    checkpoint = manifest.checkpoint(checkpoint_id)
    if checkpoint is None or checkpoint.is_expired(now_ms):
        raise CheckpointMissing(checkpoint_id)
    return checkpoint


def place_of(where: Where) -> str:
    """A database in a message."""
    store = where.store if isinstance(where.store, str) else "the store"
    return f"{store.rstrip('/')}/{where.root}"


async def _shared_checkpoint(stored: StoredManifest, env: Env, lifetime_ms: int) -> Checkpoint:
    """The checkpoint of an earlier query, renewed if need be, or a new one if the database has changed since."""
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
    """What a read depends on."""
    return (
        manifest.tree,
        manifest.segments,
        manifest.last_l0_seq,
        manifest.replay_after_wal_id,
        manifest.external_dbs,
    )


def _span(manifest: Manifest, last_id: int) -> WalSpan | None:
    first_id = manifest.replay_after_wal_id + 1
    return WalSpan(first_id=first_id, last_id=last_id) if last_id >= first_id else None
