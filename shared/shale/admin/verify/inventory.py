"""Everything that the metadata of a database say: read once, checked, and turned into a list of what has to be there.

Objects are listed before metadata are read, so that nothing committed meanwhile looks like an orphan.  Trees are
forgotten as soon as their SSTs are noted: memory grows with the SSTs and the checkpoints, not with their product.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from uuid import UUID

from shale.admin.verify.borrowing import check_borrowing
from shale.admin.verify.compaction_rules import outputs_of
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
from shale.admin.verify.versions import HOLES_MAX, check_compactions, check_manifests, without_trees
from shale.admin.verify.wal_rules import all_missing
from shale.env import Env
from shale.format.names import sst_key, wal_prefix
from shale.protocol.checkpoint_names import named_checkpoint
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.followers import followed_after
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.versioned import Versioned
from shale.protocol.wal_place import require_wal_place
from shale.protocol.wal_store import WalFile, WalStore
from shale.sst.paths import SstPaths
from shale.sst.verify.codes import Code
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

    ``checkpoint``: the one to which all is limited, if there is one.  ``latest``: the newest manifest, without its
    trees.  ``manifests``: those that count, by id, without trees: the newest one, and those that checkpoints keep.
    ``wal_files``: all that were listed.  ``versions``: how many manifests and compactions files were read;
    ``objects``: how many were listed.  ``orphans``: at most ``ORPHANS_MAX``; ``orphan_totals`` counts all, by reason.
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

    @property
    def replay_after(self) -> int:
        """No manifest that counts replays a WAL file up to this one."""
        return min(int(manifest.replay_after_wal_id) for manifest in (self.latest, *self.manifests.values()))


@dataclass(slots=True)
class _Database:
    """The database that is read, and what was found so far."""

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
        """Whether a checkpoint still keeps its version."""
        return not entry.is_expired(self.env.clock.now_ms())

    def count(self, manifest_id: int, manifest: Manifest) -> None:
        """Note every SST that a manifest shows, once; manifests have to agree on it."""
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
        checkpoint: an id or a name: only what this one keeps has to be there, and orphans are not looked for.

    Raises:
        LatestRecordMissing: there is no database.
        InvalidRequestError: its WAL is in a store of its own, and that was not named.
        CheckpointMissing: the checkpoint is not listed, or has expired.
        AmbiguousCheckpoint: several have that name.
        CorruptionError: the newest manifest or its boundary cannot be read, so nothing can be told.
    """
    database = _Database(
        store,
        root,
        env,
        WalStore(wal_store or store, root, env),
        ManifestStore(store, root, env),
        CompactionsStore(store, root, env),
        await list_database(store, wal_store, root),
    )
    listing, findings = database.listing, database.findings
    findings += _foreign_names(listing)
    versions, compactions = await check_compactions(store, database.compactions, listing.compactions, findings)
    latest = await database.manifests.read_latest()
    require_wal_place(latest.value, root, is_named=wal_store is not None)
    live = [entry for entry in latest.value.checkpoints if database.is_live(entry)]
    only = None if checkpoint is None else named_checkpoint(latest.value, checkpoint, env.clock.now_ms())
    chosen = None if only is None else int(only.manifest_id)
    if chosen in {None, latest.id}:
        database.count(latest.id, latest.value)

    def use(manifest_id: int, manifest: Manifest) -> None:
        if manifest_id != latest.id and chosen in {None, manifest_id}:
            database.count(manifest_id, manifest)

    versions += await check_manifests(
        store,
        database.manifests,
        root,
        listed=listing.manifests,
        latest_id=latest.id,
        wanted={int(entry.manifest_id) for entry in live},
        findings=findings,
        use=use,
    )
    await _check_wal(database, None if checkpoint is not None else latest.id)
    findings += await check_borrowing(store, database.counted.values(), env)
    orphans = Orphans()
    if checkpoint is None:
        findings += _epoch_findings(database, latest, compactions)
        orphans = await _orphans(database, latest.value, live, compactions)
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
    )


async def _orphans(
    database: _Database, latest: Manifest, live: list[Checkpoint], compactions: Versioned[Compactions] | None
) -> Orphans:
    """What nothing names; outputs of jobs are looked for on the way.

    Args:
        live: the checkpoints of the latest manifest that keep their versions.
        compactions: the newest, if there is one.
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


def _foreign_names(listing: Listing) -> list[Finding]:
    what = "SlateDB takes this for a version and then looks for another name: its readers hang"
    return [Finding(each.key, what, None, Code.FOREIGN_NAME) for each in listing.hanging]


def _epoch_findings(
    database: _Database, latest: Versioned[Manifest], compactions: Versioned[Compactions] | None
) -> list[Finding]:
    """A coordinator claims its epoch in the manifest first, and what it then writes was read before that manifest."""
    if compactions is None or compactions.value.compactor_epoch <= latest.value.compactor_epoch:
        return []
    what = f"its compactor_epoch is {compactions.value.compactor_epoch}, the manifest's {latest.value.compactor_epoch}"
    return [Finding(database.compactions.namespace.key(compactions.id), what, None, Code.EPOCH_AHEAD)]


async def _check_wal(database: _Database, latest_id: int | None) -> None:
    """Every file that replay would read is there; a half-built clone may lack some.

    Args:
        latest_id: the log goes on behind what this version knows of it.
    """
    counted = [(each, key == latest_id) for key, each in database.counted.items() if each.initialized]
    missing = all_missing(counted, array("Q", (file.id for file in database.listing.wal)))
    database.findings.left_out += max(0, len(missing) - HOLES_MAX)
    missing = missing[:HOLES_MAX]
    # One may have been written after the listing.
    there = await gather([partial(database.wal.exists, each.first) for each in missing]) if missing else []
    for each, is_there in zip(missing, there, strict=True):
        if not is_there:
            database.findings.append(Finding(database.wal.key(each.first), each.what, None, each.code))


def _unused_wal_files(database: _Database, latest: Manifest, *, is_all_known: bool) -> Iterable[Orphan]:
    """What nobody replays, if the checkpoints of ``latest`` are those that count."""
    named = {int(entry.manifest_id) for entry in latest.checkpoints}
    pinned = {key: manifest for key, manifest in database.counted.items() if key in named}
    return wal_orphans(
        database.listing.wal,
        latest=latest,
        pinned=pinned.values(),
        followed_after=followed_after(latest, pinned) if is_all_known else None,
        is_all_known=is_all_known,
        prefix=wal_prefix(database.root),
    )


async def _check_outputs(database: _Database, compactions: Compactions) -> None:
    """A compaction that is under way goes on behind what it has written."""
    outputs = {sst_id: entry for entry in compactions.entries if entry.is_active for sst_id in outputs_of(entry)}
    listed = {sst.id for sst in database.listing.ssts if sst.id in outputs} if outputs else set()
    for sst_id, entry in outputs.items():
        path = sst_key(database.root, sst_id)
        if sst_id not in listed and await database.store.head(path) is None:
            what = f"compaction {entry.id} relies on this output, and it is gone"
            database.findings.append(Finding(path, what, None, Code.COMPACTION_OUTPUT))
