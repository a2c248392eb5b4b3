"""Read and check the metadata of a database, and list the objects that must exist.

Objects are listed before the metadata are read, so that no object committed meanwhile looks like an orphan.  Trees are
dropped once their SSTs are recorded: memory grows with SSTs plus checkpoints, not with their product.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from uuid import UUID

from shale.admin.verify.borrowing import check_borrowing
from shale.admin.verify.findings import Findings
from shale.admin.verify.listing import Listing, list_database
from shale.admin.verify.orphans import (
    Orphan,
    Orphans,
    OrphanTotal,
    sst_orphans,
    stray_orphans,
    stray_reason,
    wal_orphans,
)
from shale.admin.verify.rules import all_missing, outputs_of
from shale.admin.verify.tree_steps import HiddenSeqs
from shale.admin.verify.versions import HOLES_MAX, check_compactions, check_manifests, without_trees
from shale.concurrency.gather import gather
from shale.core.lazy_dataclass import dataclass
from shale.env import Env
from shale.format.names import sst_key, wal_prefix
from shale.protocol.checkpoints import resolve_checkpoint
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.followers import oldest_followed_wal_id
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.versioned import Versioned
from shale.protocol.wal_completeness import require_wal_store
from shale.protocol.wal_store import WalFile, WalStore
from shale.sst.paths import SstPaths
from shale.sst.verify.codes import Code
from shale.sst.verify.finding import Finding
from shale.store.port import ObjectStore
from shale.types import Checkpoint, Compactions, Manifest, Sst


@dataclass(frozen=True, slots=True)
class NeededSst:
    """An SST that must exist; ``last_seq``: highest sequence number that any manifest with the SST makes visible."""

    path: str
    sst: Sst
    last_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The metadata of a database.

    Args:
        latest: the newest manifest, without trees.
        checkpoint: the only checkpoint that is checked; ``None``: all.
        manifests: the newest manifest and those of checkpoints, by id, without trees.
        wal_files: all listed WAL files.
        orphans: at most ``ORPHANS_MAX``; ``orphan_totals`` counts all, by reason.
        versions: number of manifests and compactions files that were read.
        objects: number of listed objects.
        hidden: see ``hidden_seqs``.
    """

    latest_id: int
    latest: Manifest
    checkpoint: UUID | None
    manifests: Mapping[int, Manifest]
    ssts: tuple[NeededSst, ...]
    wal_files: Sequence[WalFile]
    findings: tuple[Finding, ...]
    findings_left_out: int
    orphans: tuple[Orphan, ...]
    orphan_totals: Mapping[str, OrphanTotal]
    versions: int
    objects: int
    hidden: tuple[HiddenSeqs, ...] = ()

    @property
    def replay_after(self) -> int:
        """Highest WAL id that no manifest in ``manifests`` replays."""
        return min(int(manifest.replay_after_wal_id) for manifest in (self.latest, *self.manifests.values()))


@dataclass(slots=True)
class _Database:
    """The database, and the findings so far."""

    store: ObjectStore
    root: str
    env: Env
    wal: WalStore
    manifests: ManifestStore
    compactions: CompactionsStore
    listing: Listing
    findings: Findings = field(default_factory=Findings)
    counted: dict[int, Manifest] = field(default_factory=dict)
    needed: dict[str, NeededSst] = field(default_factory=dict)

    def is_live(self, entry: Checkpoint) -> bool:
        """Return whether a checkpoint has not expired."""
        return not entry.is_expired(self.env.clock.now_ms())

    def count(self, manifest_id: int, manifest: Manifest) -> None:
        """Record each SST of a manifest once; report manifests that disagree about it."""
        paths = SstPaths.of(self.root, manifest)
        for sst in manifest.ssts().values():
            path = paths.key(sst.id)
            known = self.needed.get(path)
            if known is None:
                self.needed[path] = NeededSst(path, sst, manifest.last_l0_seq)
                continue
            if known.sst != sst:
                what = f"manifest {manifest_id} and another one say different things of it"
                self.findings.append(Finding(path, what, None, Code.SST_DISAGREEMENT))
            if known.last_seq < manifest.last_l0_seq:
                self.needed[path] = replace(known, last_seq=manifest.last_l0_seq)
        self.counted[manifest_id] = without_trees(manifest)


async def read_inventory(
    store: ObjectStore, wal_store: ObjectStore | None, root: str, env: Env, *, checkpoint: UUID | str | None = None
) -> Inventory:
    """Read the metadata of the database at ``root``.

    Args:
        checkpoint: id or name; check only the objects of this checkpoint, and skip orphans.

    Raises:
        LatestRecordMissing: there is no database.
        InvalidRequestError: its WAL is in a store of its own, and that store was not given.
        CheckpointMissing: the checkpoint does not exist or has expired.
        AmbiguousCheckpoint: several checkpoints have that name.
        CorruptionError: the newest manifest or its boundary cannot be read.
    """
    database = _Database(
        store,
        root,
        env,
        WalStore(wal_store or store, root),
        ManifestStore(store, root, env),
        CompactionsStore(store, root, env),
        await list_database(store, wal_store, root),
    )
    listing, findings = database.listing, database.findings
    findings += _foreign_names(listing)
    versions, compactions = await check_compactions(store, database.compactions, listing.compactions, findings)
    latest = await database.manifests.read_latest()
    require_wal_store(latest.value, root, wal_store)
    live = [entry for entry in latest.value.checkpoints if database.is_live(entry)]
    only = None if checkpoint is None else resolve_checkpoint(latest.value, checkpoint, env.clock.now_ms())
    chosen = None if only is None else int(only.manifest_id)
    if chosen in {None, latest.id}:
        database.count(latest.id, latest.value)

    def use(manifest_id: int, manifest: Manifest) -> None:
        if manifest_id != latest.id and chosen in {None, manifest_id}:
            database.count(manifest_id, manifest)

    manifests, hidden = await check_manifests(
        store,
        database.manifests,
        listing,
        latest_id=latest.id,
        wanted={int(entry.manifest_id) for entry in live},
        findings=findings,
        use=use,
    )
    versions += manifests
    await _check_wal(database, None if checkpoint is not None else latest.id)
    findings += await check_borrowing(store, database.counted.values(), env)
    orphans = Orphans()
    if checkpoint is None:
        findings += _epoch_findings(database, latest, compactions)
        orphans = await _orphans(database, latest.value, live, compactions)
        findings += _empty_tree_findings(database, latest)
    return Inventory(
        latest_id=latest.id,
        latest=without_trees(latest.value),
        checkpoint=None if only is None else only.id,
        manifests=database.counted,
        ssts=tuple(database.needed[path] for path in sorted(database.needed)),
        wal_files=listing.wal,
        findings=tuple(findings.listed),
        findings_left_out=findings.left_out,
        orphans=tuple(orphans.listed),
        orphan_totals=orphans.totals,
        versions=versions,
        objects=listing.objects,
        hidden=tuple(hidden) if checkpoint is None else (),
    )


async def _orphans(
    database: _Database, latest: Manifest, live: list[Checkpoint], compactions: Versioned[Compactions] | None
) -> Orphans:
    """Return unreferenced objects; also check that the outputs of active jobs exist.

    Args:
        live: checkpoints of the latest manifest that have not expired.
        compactions: the newest compactions, if any.
    """
    entries = compactions.value if compactions is not None else Compactions()
    await _check_outputs(database, entries)
    is_all_known = {int(entry.manifest_id) for entry in live} <= database.counted.keys()
    orphans = Orphans()
    orphans.add(
        sst_orphans(
            database.listing.ssts,
            root=database.root,
            referenced={needed.sst.id for needed in database.needed.values()},
            latest=latest,
            compactions=entries,
            is_all_known=is_all_known,
        )
    )
    kept = replace(latest, checkpoints=tuple(live))
    orphans.add(_unused_wal_files(database, kept, is_all_known=is_all_known))
    orphans.add(stray_orphans(database.listing.strays))
    for is_staged, (count, size) in database.listing.strays_left_out.items():
        orphans.count(stray_reason(is_staged=is_staged), count, size)
    return orphans


def _empty_tree_findings(database: _Database, latest: Versioned[Manifest]) -> list[Finding]:
    """Check that flushed rows are in a tree: without a watermark no compaction has ever taken an L0."""
    manifest = latest.value
    is_empty = all(tree.is_empty and tree.last_compacted_l0_sst_view_id is None for _, tree in manifest.trees())
    count = len(database.listing.ssts)
    if not (is_empty and manifest.initialized and manifest.last_l0_seq and count) or manifest.external_dbs:
        return []
    what = f"last_l0_seq is {manifest.last_l0_seq}, no tree has an SST, and none was compacted: {count} SSTs are there"
    return [Finding(database.manifests.namespace.key(latest.id), what, None, Code.L0_VANISHED)]


def _foreign_names(listing: Listing) -> list[Finding]:
    what = "SlateDB takes this for a version and then looks for another name: its readers hang"
    return [Finding(each.key, what, None, Code.FOREIGN_NAME) for each in listing.hanging]


def _epoch_findings(
    database: _Database, latest: Versioned[Manifest], compactions: Versioned[Compactions] | None
) -> list[Finding]:
    """Check the epochs: a coordinator claims its epoch in the manifest before the compactions."""
    if compactions is None or compactions.value.compactor_epoch <= latest.value.compactor_epoch:
        return []
    what = f"its compactor_epoch is {compactions.value.compactor_epoch}, the manifest's {latest.value.compactor_epoch}"
    return [Finding(database.compactions.namespace.key(compactions.id), what, None, Code.EPOCH_AHEAD)]


async def _check_wal(database: _Database, latest_id: int | None) -> None:
    """Check that all WAL files of a replay exist; half-built clones are skipped.

    Args:
        latest_id: id of the newest manifest, whose replay continues beyond ``next_wal_sst_id``.
    """
    counted = [(each, key == latest_id) for key, each in database.counted.items() if each.initialized]
    missing = all_missing(counted, array("Q", (file.id for file in database.listing.wal)))
    database.findings.left_out += max(0, len(missing) - HOLES_MAX)
    missing = missing[:HOLES_MAX]
    # A file may have been written after the listing.
    there = await gather([partial(database.wal.exists, each.first) for each in missing]) if missing else []
    for each, is_there in zip(missing, there, strict=True):
        if not is_there:
            database.findings.append(Finding(database.wal.key(each.first), each.what, None, each.code))


def _unused_wal_files(database: _Database, latest: Manifest, *, is_all_known: bool) -> Iterable[Orphan]:
    """Return the WAL files that neither ``latest`` nor its checkpoints replay."""
    named = {int(entry.manifest_id) for entry in latest.checkpoints}
    pinned = {key: manifest for key, manifest in database.counted.items() if key in named}
    return wal_orphans(
        database.listing.wal,
        latest=latest,
        pinned=pinned.values(),
        oldest_followed_wal_id=oldest_followed_wal_id(latest, pinned) if is_all_known else None,
        is_all_known=is_all_known,
        prefix=wal_prefix(database.root),
    )


async def _check_outputs(database: _Database, compactions: Compactions) -> None:
    """Check that the published outputs of active compactions exist: a resumed job continues after them."""
    outputs = {sst_id: entry for entry in compactions.entries if entry.is_active for sst_id in outputs_of(entry)}
    listed = {sst.id for sst in database.listing.ssts if sst.id in outputs} if outputs else set()
    for sst_id, entry in outputs.items():
        path = sst_key(database.root, sst_id)
        if sst_id not in listed and await database.store.head(path) is None:
            what = f"compaction {entry.id} relies on this output, and it is gone"
            database.findings.append(Finding(path, what, None, Code.COMPACTION_OUTPUT))
