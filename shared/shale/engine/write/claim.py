"""Becoming the writer of a database: create, check, claim the epoch, fence the WAL (docs/reference/protocol.md 4.1)."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from shale.core.lazy_dataclass import dataclass
from shale.engine.flush.writer_checkpoint import WriterCheckpoint, without_writers_before
from shale.engine.wal.replay import check_wal
from shale.engine.write.segments import require_extractor
from shale.env import Env
from shale.errors import (
    CorruptionError,
    InvalidDbState,
    InvalidRequestError,
    ObjectVersionExists,
)
from shale.format.sst.filter_policy import PrefixExtractor
from shale.kernels.rows import EMPTY_ROWS, Rows
from shale.protocol.manifest_store import WRITER, FenceableManifest, ManifestStore, StoredManifest
from shale.protocol.transactional import Stored
from shale.protocol.visible_range import require_usable
from shale.protocol.wal_completeness import backend_name, require_complete_wal, require_wal_store
from shale.protocol.wal_fence import fence_wal
from shale.protocol.wal_store import WalStore
from shale.store.location import require_in_store, similar_database
from shale.store.port import ObjectStore
from shale.telemetry.metrics import Metrics
from shale.types import Epoch, ExclusiveModes, KeyRange, Manifest, WalId

Admission: TypeAlias = Callable[[StoredManifest, WalId], Awaitable[None]]
"""Called right before the epoch is claimed, with the newest manifest and the id of the last WAL file.  It raises to
leave the database as it is."""


@dataclass(frozen=True, slots=True)
class ClaimedDatabase:
    """A claimed database.  Older writers can write no manifest, and no WAL file that is replayed."""

    manifest: FenceableManifest
    fence_id: WalId
    wal_rows: dict[int, Rows]
    """Rows of WAL files that were read before the claim, by id."""
    keys: KeyRange | None = None
    """The keys that the writer keeps to; ``None``: all."""
    checkpoint: WriterCheckpoint | None = None
    """The checkpoint that the claim created."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimOptions:
    """How a database is claimed.

    ``wal_store``: the store or the backend of the WAL, if it has one of its own.  ``extractor``: of the database's
    segments; a new database records its name.  ``max_parallel_writes``: WAL files that are written at the same time;
    fixed when the database is created, ``None``: as it is, 1 for a new one.  ``admit``: may refuse; while it runs no
    other writer is fenced.  ``keys``: to keep to these, instead of the stored range of a projected clone.
    ``checkpoint``: what the claim pins.  ``wal_rows``: of WAL files that were read before, by id; the claim changes it.
    """

    create_if_missing: bool = True
    wal_store: ObjectStore | None = None
    extractor: PrefixExtractor | None = None
    max_parallel_writes: int | None = None
    admit: Admission | None = None
    keys: KeyRange | None = None
    checkpoint: WriterCheckpoint | None = None
    wal_rows: dict[int, Rows] | None = None


async def claim_database(
    manifests: ManifestStore,
    wal: WalStore,
    *,
    store: ObjectStore,
    root: str,
    env: Env,
    metrics: Metrics,
    options: ClaimOptions,
) -> ClaimedDatabase:
    """Become the writer of the database at ``root``; create the database if there is none.

    Raises:
        InvalidDbState: half built, destroyed, missing with ``create_if_missing`` off, or without WAL files that the
            manifest knows of.
        SegmentExtractorMismatch, SegmentPrefixNotRecognized: another extractor made the database's segments.
        InvalidRequestError: the database has another ``max_parallel_writes``, or a WAL store that was not given.
        FencedError: a newer writer claimed meanwhile.
        CorruptionError: the manifest or a WAL file is damaged; nothing was written.
    """
    keys = await require_usable(store, root, options.keys)
    stored = await _load(store, root, manifests, env, _new_manifest(options) if options.create_if_missing else None)
    _check(stored.value, root, options)
    require_in_store(store.url, root, (each.path for each in stored.value.external_dbs))
    last_id, wal_rows = await _checked_wal_end(stored, manifests, wal, env, options.wal_rows)
    only_after = None
    if options.admit is not None:
        only_after = stored.value.writer_epoch
        await options.admit(stored, last_id)
    own = options.checkpoint

    def claimed(manifest: Manifest, epoch: Epoch, version: int) -> Manifest:
        if own is None:
            return without_writers_before(manifest, epoch)
        return own.claimed(manifest, epoch, version)

    fenceable = await FenceableManifest.claim(stored, WRITER, only_after=only_after, edit=claimed)
    fence = await fence_wal(wal, fenceable, last_id + 1, env, metrics)
    await fenceable.refresh()
    wal_rows.update(dict.fromkeys(fence.ids, EMPTY_ROWS))
    return ClaimedDatabase(fenceable, fence.id, wal_rows, keys, own)


async def _load(
    store: ObjectStore, root: str, manifests: ManifestStore, env: Env, new: Manifest | None
) -> StoredManifest:
    latest = await manifests.try_read_latest()
    if latest is not None:
        return Stored(manifests, latest, env)
    if new is None:
        raise InvalidDbState(
            f"there is no database at {root or '/'} in {store.url}, and create_if_missing is off"
            f"{similar_database(store.url, root)}"
        )
    try:
        return await manifests.create_new(new)
    except ObjectVersionExists:
        # Another process created it a moment ago; both open the same database, and the epoch decides.
        return await manifests.load()


async def _checked_wal_end(
    stored: StoredManifest, manifests: ManifestStore, wal: WalStore, env: Env, known: dict[int, Rows] | None
) -> tuple[WalId, dict[int, Rows]]:
    """Return the id of the last WAL file and the rows that ``check_wal`` keeps.

    All files to replay are read before anything is written.  So a database that cannot be replayed stays as it is, and
    a live writer keeps its epoch.

    Raises:
        CorruptionError: a file that replay needs is damaged, or missing before others.
        InvalidDbState: the first file that replay needs is missing.
    """
    while True:
        replayed_id = stored.value.replay_after_wal_id
        known_id = int(replayed_id)
        while known and known_id + 1 in known:
            known_id += 1
        last_id = await wal.last_seen_wal_id(known_id, has_gaps=stored.value.has_parallel_wal)
        await require_complete_wal(wal, manifests, stored.value, last_id)
        try:
            rows = await check_wal(wal, replayed_id + 1, last_id, env, known)
        except CorruptionError:
            # A live writer may have flushed those rows to L0 meanwhile; then the file is not needed.
            await stored.refresh()
            if stored.value.replay_after_wal_id == replayed_id:
                raise
        else:
            return last_id, rows


def _new_manifest(options: ClaimOptions) -> Manifest:
    modes = ExclusiveModes(
        max_parallel_writes=options.max_parallel_writes or 1, wal_backend=backend_name(options.wal_store)
    )
    return Manifest(
        segment_extractor_name=None if options.extractor is None else options.extractor.name,
        exclusive=None if modes == ExclusiveModes() else modes,
    )


def _check(manifest: Manifest, root: str, options: ClaimOptions) -> None:
    if not manifest.initialized:
        raise InvalidDbState(f"the database at {root or '/'} is not initialised: a clone that was not completed")
    require_extractor(manifest, options.extractor, root)
    require_wal_store(manifest, root, options.wal_store)
    wanted, found = options.max_parallel_writes, manifest.max_parallel_writes
    if wanted not in (None, found):
        raise InvalidRequestError(
            f"max_parallel_writes={wanted}: the database at {root or '/'} was created with {found}, which is fixed"
        )
