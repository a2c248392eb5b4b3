"""Everything that the metadata of a database say: read once, checked, and turned into a list of what has to be there.

Objects are listed before metadata are read, so that nothing committed meanwhile looks like an orphan.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from uuid import UUID

from shale.admin.verify.orphans import ListedSst, Orphan, outputs_of, sst_orphans, wal_orphans
from shale.admin.verify.versions import check_compactions, check_manifests
from shale.env import Env
from shale.errors import CheckpointMissing
from shale.format.names import compacted_prefix, parse_sst_key, sst_key, wal_prefix
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.followers import followed_after
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.versioned import Versioned
from shale.protocol.wal_place import require_wal_place
from shale.protocol.wal_store import WalFile, WalStore
from shale.sst.paths import SstPaths
from shale.sst.verify.finding import Finding
from shale.store.gather import gather
from shale.store.port import ObjectStore
from shale.types import Checkpoint, Compactions, Manifest, Sst


@dataclass(frozen=True, slots=True)
class NeededSst:
    """An SST that has to be there.

    ``last_seq``: rows above it are invisible to every manifest that shows the SST.
    """

    path: str
    sst: Sst
    last_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """What was read.

    ``manifests``: those that count, by id: the latest, and those that checkpoints keep.  ``wal_files``: all that were
    listed.  ``versions``: how many manifests and compactions files were read.
    """

    latest_id: int
    manifests: Mapping[int, Manifest]
    ssts: tuple[NeededSst, ...]
    wal_files: tuple[WalFile, ...]
    findings: tuple[Finding, ...]
    orphans: tuple[Orphan, ...]
    versions: int


@dataclass(slots=True)
class _Database:
    """The database that is read, and what was found so far."""

    store: ObjectStore
    root: str
    env: Env
    wal: WalStore
    manifests: ManifestStore
    compactions: CompactionsStore
    ssts: tuple[ListedSst, ...] = ()
    wal_files: tuple[WalFile, ...] = ()
    findings: list[Finding] = field(default_factory=list)

    def is_live(self, entry: Checkpoint) -> bool:
        """Whether a checkpoint still keeps its version."""
        return not entry.is_expired(self.env.clock.now_ms())


async def read_inventory(
    store: ObjectStore, wal_store: ObjectStore | None, root: str, env: Env, *, checkpoint: UUID | None = None
) -> Inventory:
    """Read the metadata of the database at ``root``.

    Args:
        checkpoint: only what this one keeps has to be there, and orphans are not looked for.

    Raises:
        LatestRecordMissing: there is no database.
        InvalidRequestError: its WAL is in a store of its own, and that was not named.
        CheckpointMissing: the checkpoint is not listed, or has expired.
        CorruptionError: the newest manifest or its boundary cannot be read, so nothing can be told.
    """
    wal = WalStore(wal_store or store, root, env)
    database = _Database(store, root, env, wal, ManifestStore(store, root, env), CompactionsStore(store, root, env))
    database.ssts = tuple(await _list_ssts(database))
    database.wal_files = tuple(await wal.list())
    compactions_versions, compactions = await check_compactions(store, database.compactions, database.findings)
    latest = await database.manifests.read_latest()
    require_wal_place(latest.value, root, is_named=wal_store is not None)
    live = [entry for entry in latest.value.checkpoints if database.is_live(entry)]
    wanted = {int(entry.manifest_id) for entry in live}
    manifest_versions, pinned = await check_manifests(database.manifests, wanted, database.findings)
    counted = _counted(latest, pinned, live, checkpoint)
    ssts = _needed(database, counted)
    await _check_wal(database, counted, None if checkpoint is not None else latest.id)
    orphans: tuple[Orphan, ...] = ()
    if checkpoint is None:
        referenced = {each.sst.id for each in ssts}
        unused_ssts = sst_orphans(database.ssts, referenced=referenced, latest=latest.value, compactions=compactions)
        counting = replace(latest.value, checkpoints=tuple(live))
        orphans = (*unused_ssts, *_unused_wal_files(database, counting, pinned))
        await _check_outputs(database, compactions)
    return Inventory(
        latest_id=latest.id,
        manifests=counted,
        ssts=ssts,
        wal_files=database.wal_files,
        findings=tuple(database.findings),
        orphans=orphans,
        versions=manifest_versions + compactions_versions,
    )


def _counted(
    latest: Versioned[Manifest], pinned: Mapping[int, Manifest], live: Iterable[Checkpoint], checkpoint: UUID | None
) -> dict[int, Manifest]:
    if checkpoint is None:
        return {**pinned, latest.id: latest.value}
    entry = next((entry for entry in live if entry.id == checkpoint), None)
    if entry is None:
        raise CheckpointMissing(checkpoint)
    return {entry.manifest_id: pinned[entry.manifest_id]} if entry.manifest_id in pinned else {}


async def _list_ssts(database: _Database) -> list[ListedSst]:
    listed = []
    for meta in await database.store.list(compacted_prefix(database.root)):
        sst_id = parse_sst_key(database.root, meta.key)
        if sst_id is not None:
            listed.append(ListedSst(sst_id, meta.key, meta.size))
    return listed


def _needed(database: _Database, counted: Mapping[int, Manifest]) -> tuple[NeededSst, ...]:
    """Every SST that some manifest shows, once; manifests have to agree on it."""
    needed: dict[str, NeededSst] = {}
    for manifest_id in sorted(counted, reverse=True):
        manifest = counted[manifest_id]
        paths = SstPaths.of(database.root, manifest)
        for sst in manifest.ssts().values():
            path = paths.key(sst.id)
            known = needed.setdefault(path, NeededSst(path, sst, manifest.last_l0_seq))
            if known.sst != sst:
                what = f"manifest {manifest_id} and a newer one say different things of it"
                database.findings.append(Finding(path, what))
    return tuple(needed[path] for path in sorted(needed))


async def _check_wal(database: _Database, counted: Mapping[int, Manifest], latest_id: int | None) -> None:
    """Every file that replay would read is there.

    Args:
        latest_id: the log goes on behind what this version knows of it.
    """
    listed = {int(file.id) for file in database.wal_files}
    wanted: set[int] = set()
    for manifest_id, manifest in counted.items():
        end = int(manifest.next_wal_sst_id)
        if manifest_id == latest_id:
            end = max(end, max(listed, default=0) + 1)
        wanted |= set(range(manifest.replay_after_wal_id + 1, end))
    missing = sorted(wanted - listed)
    if not missing:
        return
    # One may have been written after the listing.
    there = await gather([partial(database.wal.exists, wal_id) for wal_id in missing])
    for wal_id, is_there in zip(missing, there, strict=True):
        if not is_there:
            database.findings.append(Finding(database.wal.key(wal_id), "the file is gone, and replay would need it"))


def _unused_wal_files(database: _Database, latest: Manifest, pinned: Mapping[int, Manifest]) -> Iterator[Orphan]:
    if any(entry.manifest_id not in pinned for entry in latest.checkpoints):
        return iter(())  # what a version that cannot be read keeps is not known
    return wal_orphans(
        database.wal_files,
        latest=latest,
        pinned=pinned.values(),
        followed_after=followed_after(latest, pinned),
        prefix=wal_prefix(database.root),
    )


async def _check_outputs(database: _Database, compactions: Compactions | None) -> None:
    """A compaction that is under way goes on behind what it has written."""
    listed = {sst.id for sst in database.ssts}
    for entry in compactions.entries if compactions is not None else ():
        for sst_id in outputs_of(entry) if entry.is_active else ():
            path = sst_key(database.root, sst_id)
            if sst_id not in listed and await database.store.head(path) is None:
                what = f"compaction {entry.id} relies on this output, and it is gone"
                database.findings.append(Finding(path, what))
