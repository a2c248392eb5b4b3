"""Becoming the writer of a database: create, check, claim the epoch, fence the WAL (docs/protocol.md 4.1)."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from shale.engine.replay import check_wal
from shale.engine.segments import require_extractor
from shale.engine.writer_manifest import WriterManifest
from shale.env import Env
from shale.errors import (
    CorruptionError,
    InvalidDbState,
    ObjectVersionExists,
)
from shale.format.bloom import PrefixExtractor
from shale.kernels.rows import EMPTY_ROWS, Rows
from shale.protocol.manifest_store import WRITER, FenceableManifest, ManifestStore, StoredManifest
from shale.protocol.markers import require_not_destroyed
from shale.protocol.transactional import Stored
from shale.protocol.wal_fence import fence_wal
from shale.protocol.wal_place import require_known_files, require_wal_place
from shale.protocol.wal_store import WalStore
from shale.store.port import ObjectStore
from shale.telemetry.metrics import Metrics
from shale.types import Manifest, WalId

Admission: TypeAlias = Callable[[StoredManifest, WalId], Awaitable[None]]
"""Asked right before the epoch is claimed, with the newest manifest and the last WAL file.  Whoever raises leaves the
database as it is."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A claimed database.  Older writers can write neither manifests nor WAL files that anybody would read."""

    manifest: WriterManifest
    fence_id: WalId
    wal_rows: dict[int, Rows]
    """Of files that were read already, by id."""


async def claim_database(
    manifests: ManifestStore,
    wal: WalStore,
    *,
    store: ObjectStore,
    root: str,
    env: Env,
    metrics: Metrics,
    create_if_missing: bool = True,
    separate_wal: bool = False,
    extractor: PrefixExtractor | None = None,
    admit: Admission | None = None,
) -> Claim:
    """Take over the database at ``root``, creating it if there is none.

    Args:
        extractor: of the database's segments; a new database keeps its name.
        admit: may refuse; a writer that claims after it was asked is not fenced either.

    Raises:
        InvalidDbState: half built, destroyed, absent with ``create_if_missing`` off, or without WAL files that the
            manifest knows of.
        SegmentExtractorMismatch, SegmentPrefixNotRecognized: another extractor made the database's segments.
        FencedError: a newer writer came in between.
        CorruptionError: the manifest or a WAL file is damaged; nothing was written.
    """
    new = Manifest(segment_extractor_name=None if extractor is None else extractor.name)
    stored = await _load(store, root, manifests, env, new if create_if_missing else None)
    _check(stored.value, root, extractor, separate_wal=separate_wal)
    last_id, wal_rows = await _checked_wal_end(stored, manifests, wal, env)
    only_after = None
    if admit is not None:
        only_after = stored.value.writer_epoch
        await admit(stored, last_id)
    fenceable = await FenceableManifest.claim(stored, WRITER, only_after=only_after)
    fence = await fence_wal(wal, fenceable, last_id + 1, env, metrics)
    await fenceable.refresh()
    wal_rows[fence.id] = EMPTY_ROWS
    return Claim(WriterManifest(fenceable, env), fence.id, wal_rows)


async def _load(
    store: ObjectStore, root: str, manifests: ManifestStore, env: Env, new: Manifest | None
) -> StoredManifest:
    await require_not_destroyed(store, root)
    latest = await manifests.try_read_latest()
    if latest is not None:
        return Stored(manifests, latest, env)
    if new is None:
        raise InvalidDbState(f"there is no database at {root or '/'} in {store.url}")
    try:
        return await manifests.create_new(new)
    except ObjectVersionExists:
        # Another process created it in this moment; both open the same one, and the epoch decides.
        return await manifests.load()


async def _checked_wal_end(
    stored: StoredManifest, manifests: ManifestStore, wal: WalStore, env: Env
) -> tuple[WalId, dict[int, Rows]]:
    """The last WAL file, and the rows of the log as ``check_wal`` keeps them.

    Everything to replay is read before anything is written.  A database that cannot be replayed thus stays as it is,
    whoever tries, and a writer that is alive keeps its epoch.

    Raises:
        CorruptionError: a file that replay needs is damaged.
        InvalidDbState: the first file that replay needs is not there.
    """
    while True:
        replayed_id = stored.value.replay_after_wal_id
        last_id = await wal.last_seen_wal_id(replayed_id)
        await require_known_files(wal, manifests, stored.value, last_id)
        try:
            rows = await check_wal(wal, replayed_id + 1, last_id, env)
        except CorruptionError:
            # A writer that is alive may have brought those rows to L0 meanwhile; then nobody needs the file.
            await stored.refresh()
            if stored.value.replay_after_wal_id == replayed_id:
                raise
        else:
            return last_id, rows


def _check(manifest: Manifest, root: str, extractor: PrefixExtractor | None, *, separate_wal: bool) -> None:
    if not manifest.initialized:
        raise InvalidDbState(f"the database at {root or '/'} is not initialised: a clone that was not completed")
    require_extractor(manifest, extractor, root)
    require_wal_place(manifest, root, is_named=separate_wal)
