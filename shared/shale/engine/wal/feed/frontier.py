"""Find the end of the WAL without owning it (docs/reference/protocol.md 4.3)."""

from shale.core.lazy_dataclass import dataclass
from shale.errors import InvalidDbState
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.wal_completeness import is_wal_truncated, wal_truncated
from shale.protocol.wal_store import WalStore
from shale.types import Manifest


@dataclass(frozen=True, slots=True)
class Frontier:
    """The last WAL file, and a manifest that was read before the search for it.

    The files up to ``wal_id`` hold every change that this manifest has in L0, except changes that bypassed the WAL.
    """

    wal_id: int
    manifest: Manifest


async def find_frontier(wal: WalStore, manifests: ManifestStore, after_id: int = 0, *, skips: bool = False) -> Frontier:
    """Find the last WAL file, at or above ``after_id``.

    GC leaves holes below the manifest's replay point, so the search begins there or at ``after_id``, whichever is
    later.  If the replay point moves during the search, the search begins again.

    Args:
        after_id: a file that existed once; 0 if none is known.
        skips: search after files that are missing, too, instead of raising; other rules hold as before.

    Raises:
        LatestRecordMissing: there is no database.
        InvalidDbState: the database is half built, or its WAL ends before ``after_id`` or before the last file that
            the manifest knows of.
    """
    manifest = await _latest(manifests)
    while True:
        base = max(after_id, manifest.replay_after_wal_id)
        found = base
        if await wal.exists(base + 1):
            found = await wal.last_seen_wal_id(base + 1, has_gaps=manifest.has_parallel_wal)
        if found == after_id > manifest.replay_after_wal_id and not await wal.exists(after_id):
            again = await _latest(manifests)
            if again.replay_after_wal_id < after_id:
                raise InvalidDbState(
                    f"{wal.key(after_id)} was read once and is gone, though replay would need it: this is another"
                    " database than the one that was followed, or an older state of it"
                )
            manifest = again
            continue
        is_short = is_wal_truncated(manifest, found)
        if found == base and not is_short:
            return Frontier(found, manifest)
        again = await _latest(manifests)
        if again.replay_after_wal_id <= found:
            if is_short and skips:
                return Frontier(await _end_after_gap(wal, found, manifest), manifest)
            if is_short:
                # Without this error the feed would wait forever at the gap, although the log goes on after it.
                raise wal_truncated(wal, found, manifest)
            return Frontier(found, manifest)
        manifest = again


async def _end_after_gap(wal: WalStore, found: int, manifest: Manifest) -> int:
    """Return the last file that is there; in a parallel WAL the last one that the manifest knows of."""
    listed = await wal.ids_after(found)
    known = [each for each in listed if each < manifest.next_wal_sst_id] if manifest.has_parallel_wal else listed
    return int(known[-1]) if known else found


async def _latest(manifests: ManifestStore) -> Manifest:
    manifest = (await manifests.read_latest()).value
    if not manifest.initialized:
        raise InvalidDbState("the database is half built or being destroyed: there is nothing to follow")
    return manifest
