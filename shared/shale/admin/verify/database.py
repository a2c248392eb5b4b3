"""Check a database in one process, in bounded memory, while writers, compactors and GC run.

Each finding is confirmed by a second check before it is reported.  GC deletes an object after the manifest has dropped
it.  So an object is really missing if a manifest that was read *afterwards* still references it.

Source: docs/reference/protocol.md 8.2, Appendix B.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from itertools import chain
from uuid import UUID

from shale.admin.verify.findings import FINDINGS_MAX, Findings, worst_first
from shale.admin.verify.inventory import Inventory, read_inventory
from shale.admin.verify.listing import list_database
from shale.admin.verify.parts import (
    PartResult,
    VerifyPart,
    WalSeqs,
    plan_parts,
    unreplayed_rows,
    verify_part,
    wal_disorder,
)
from shale.admin.verify.report import Borrowed, DatabaseState, VerifyReport, cannot_know
from shale.admin.verify.versions import check_compactions, check_manifests
from shale.concurrency.gather import gather
from shale.core.lazy_dataclass import dataclass
from shale.env import Env
from shale.errors import CorruptionError, LatestRecordMissing
from shale.format.blocks.transform import BlockTransformer
from shale.format.names import deleting_key, destroyed_key, parse_wal_key
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.wal_store import WalStore
from shale.sst.verify.codes import Code
from shale.sst.verify.finding import Finding
from shale.sst.verify.sst import VerifyDepth
from shale.store.port import ObjectStore

_AT_ONCE = {VerifyDepth.QUICK: 8, VerifyDepth.CHECKSUMS: 4, VerifyDepth.DEEP: 2}
_BYTES_AT_ONCE = 64 * 1024 * 1024
_TAIL_FACTOR = 4
"""Decoded indexes and filters take up to this many times their stored size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """Options of a check.

    Args:
        depth: what is read of SSTs; ``QUICK`` also leaves out WAL files that are not replayed any more.
        checkpoint: id or name; check only the objects of this checkpoint, and skip orphans.
        concurrency: objects that are read concurrently; ``None``: 4, 8 if quick, 2 if deep; fewer if they are large.
    """

    depth: VerifyDepth = VerifyDepth.CHECKSUMS
    checkpoint: UUID | str | None = None
    concurrency: int | None = None


@dataclass(frozen=True, slots=True)
class VerifyProgress:
    """Progress of a check: ``done`` of ``total`` objects of a stage, ``read_bytes`` of about ``total_bytes``."""

    stage: str
    done: int = 0
    total: int = 0
    read_bytes: int = 0
    total_bytes: int = 0


OnProgress = Callable[[VerifyProgress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyTarget:
    """The database to check.  ``wal_store``: the store of its WAL, if separate."""

    store: ObjectStore
    wal_store: ObjectStore | None
    root: str
    env: Env
    transformer: BlockTransformer | None = None

    @property
    def wal(self) -> WalStore:
        """The WAL of the database."""
        return WalStore(self.wal_store or self.store, self.root, transformer=self.transformer)


@dataclass(slots=True)
class _Sums:
    """Combined results of all objects."""

    findings: Findings = field(default_factory=Findings)
    seqs: list[WalSeqs] = field(default_factory=list)
    rows: int = 0
    read_bytes: int = 0
    opaque: int = 0
    opened: int = 0
    blocks: int = 0

    def add(self, result: PartResult) -> None:
        self.findings += result.findings
        self.seqs += result.wal
        self.rows += result.rows
        self.read_bytes += result.read_bytes
        self.opaque += result.opaque
        self.opened += result.opened
        self.blocks += result.blocks


async def verify_database(
    database: VerifyTarget, options: VerifyOptions, on_progress: OnProgress | None = None
) -> VerifyReport:
    """Check a database; nothing is written.

    Raises:
        LatestRecordMissing: there is no database.
        InvalidRequestError: its WAL is in a store of its own, and that was not named.
        CheckpointMissing: there is no such checkpoint.
        AmbiguousCheckpoint: several have that name.
        UnavailableError: the store gave up.
    """
    on_step = on_progress if on_progress is not None else _ignore_progress
    state = await _marked(database)
    on_step(VerifyProgress("metadata"))
    if state is DatabaseState.DELETING:
        remark = "it is being deleted, so objects may be missing: complete it with shale db destroy"
        return VerifyReport(path=database.root, state=state, depth=options.depth, is_complete=False, remarks=(remark,))
    try:
        inventory = await _read(database, options)
    except CorruptionError as error:
        return await _without_inventory(database, options, state, error)
    sums = await _check_objects(database, inventory, options, on_step)
    encrypted = _encrypted(database, sums)
    of_objects = [each for each in sums.findings.listed if encrypted is None or each.code is not Code.UNDECODABLE]
    findings = [*inventory.findings, *of_objects, *_wal_findings(database, inventory, sums.seqs)]
    if findings:
        on_step(VerifyProgress("again", 0, len(findings), sums.read_bytes))
        # Use the id: another checkpoint may get the name meanwhile.
        options = replace(options, checkpoint=inventory.checkpoint)
        findings = await _confirmed(database, options, findings, sums.seqs)
    findings = worst_first(dict.fromkeys([*([encrypted] if encrypted is not None else []), *findings]))
    return replace(
        _report(database, inventory, options, state),
        cannot_know=cannot_know(options.depth),
        findings=tuple(findings[:FINDINGS_MAX]),
        findings_left_out=inventory.findings_left_out + sums.findings.left_out + max(0, len(findings) - FINDINGS_MAX),
        rows=sums.rows if options.depth is VerifyDepth.DEEP else None,
        blocks=sums.blocks,
        read_bytes=sums.read_bytes,
    )


def _wal_findings(database: VerifyTarget, inventory: Inventory, seqs: Sequence[WalSeqs]) -> Iterator[Finding]:
    yield from wal_disorder(seqs, database.wal, inventory.latest)
    if inventory.checkpoint is None:
        yield from unreplayed_rows(seqs, database.wal, inventory.latest, inventory.hidden)


def _ignore_progress(progress: VerifyProgress) -> None:
    """No-op progress callback."""


async def _marked(database: VerifyTarget) -> DatabaseState:
    if await database.store.head(deleting_key(database.root)) is not None:
        return DatabaseState.DELETING
    return (
        DatabaseState.READY
        if await database.store.head(destroyed_key(database.root)) is None
        else DatabaseState.DESTROYED
    )


async def _read(database: VerifyTarget, options: VerifyOptions) -> Inventory:
    return await read_inventory(
        database.store, database.wal_store, database.root, database.env, checkpoint=options.checkpoint
    )


async def _check_objects(
    database: VerifyTarget, inventory: Inventory, options: VerifyOptions, on_step: OnProgress
) -> _Sums:
    """Check all objects that must exist, several concurrently."""
    files, after = inventory.wal_files, inventory.replay_after
    if options.depth is VerifyDepth.QUICK:
        files = tuple(file for file in files if file.id > after)
    wanted = replace(inventory, wal_files=files)
    total = len(wanted.ssts) + sum(not file.is_fence for file in files)
    parts = plan_parts(wanted, part_bytes=0, items_max=1)
    sums = _Sums()
    steps = VerifyProgress("objects", 0, total, 0, _bytes_to_read(wanted, options))

    def on_read(size: int) -> None:
        nonlocal steps
        steps = replace(steps, read_bytes=steps.read_bytes + size)
        on_step(steps)

    async def work() -> None:
        nonlocal steps
        for part in parts:  # a shared iterator: each worker takes the next part
            result = await verify_part(
                part,
                database.store,
                database.wal,
                database.env,
                depth=options.depth,
                on_read=on_read,
                decode_wal_after=_decode_wal_after(inventory, options),
            )
            sums.add(result)
            steps = replace(steps, done=steps.done + 1, read_bytes=max(steps.read_bytes, sums.read_bytes))
            on_step(steps)

    on_step(steps)
    await gather([work] * max(1, min(_workers(wanted, options), total)))
    return sums


def _decode_wal_after(inventory: Inventory, options: VerifyOptions) -> int:
    """Return up to which WAL file only checksums are checked: replay needs the later ones."""
    return 0 if options.depth is VerifyDepth.DEEP else inventory.replay_after


def _bytes_to_read(inventory: Inventory, options: VerifyOptions) -> int:
    """Return about how many bytes a check reads."""
    infos = (needed.sst.info for needed in inventory.ssts)
    is_quick = options.depth is VerifyDepth.QUICK
    of_ssts = sum(info.sections_end - (info.data_len if is_quick else 0) for info in infos)
    return of_ssts + sum(file.size for file in inventory.wal_files)


def _workers(inventory: Inventory, options: VerifyOptions) -> int:
    """Return the number of workers: the requested one, or fewer to bound memory."""
    asked = options.concurrency or _AT_ONCE[options.depth]
    tails = (each.sst.info.sections_end - each.sst.info.data_len for each in inventory.ssts)
    largest = max(chain(tails, (file.size for file in inventory.wal_files)), default=0)
    return max(1, min(asked, _BYTES_AT_ONCE // max(1, largest * _TAIL_FACTOR)))


def _encrypted(database: VerifyTarget, sums: _Sums) -> Finding | None:
    """Return a single finding for a database of which no section can be decoded."""
    if not sums.opaque or sums.opened:
        return None
    what = "no section of any object can be read, although the checksums are right: "
    if database.transformer is None:
        what += "the database is encrypted, or otherwise transformed: give the key"
    else:
        what += "it was written with another key"
    return Finding(database.root, what, None, Code.ENCRYPTED)


async def _confirmed(
    database: VerifyTarget, options: VerifyOptions, findings: Sequence[Finding], seqs: Sequence[WalSeqs]
) -> list[Finding]:
    """Check the objects of all findings again; return the findings of the second check that were in the first."""
    again = await _read(database, options)
    suspects = {finding.object for finding in findings}
    listed = frozenset(array("Q", (file.id for file in again.wal_files)))
    wal_ids = {wal_id for each in suspects if (wal_id := parse_wal_key(database.root, each)) is not None}
    parts: Iterator[VerifyPart] = iter(
        [
            *(VerifyPart(ssts=(needed,)) for needed in again.ssts if needed.path in suspects),
            *(VerifyPart(wal=(int(wal_id),)) for wal_id in sorted(wal_ids & listed)),
        ]
    )
    sums = _Sums()
    for part in parts:
        result = await verify_part(
            part,
            database.store,
            database.wal,
            database.env,
            depth=options.depth,
            decode_wal_after=_decode_wal_after(again, options),
        )
        sums.add(result)
    still = [each for each in seqs if each.wal_id in listed]
    found = [*again.findings, *sums.findings.listed, *_wal_findings(database, again, still)]
    known = {(finding.object, finding.code) for finding in findings}
    return [finding for finding in found if (finding.object, finding.code) in known]


async def _without_inventory(
    database: VerifyTarget, options: VerifyOptions, state: DatabaseState, error: CorruptionError
) -> VerifyReport:
    """Check each version by itself, if the newest manifest or its boundary cannot be read."""
    manifests = ManifestStore(database.store, database.root, database.env)
    compactions = CompactionsStore(database.store, database.root, database.env)
    listing = await list_database(database.store, database.wal_store, database.root)
    if not listing.manifests:
        raise LatestRecordMissing(f"no manifest below {database.root or '/'}") from error
    found = Findings()
    found.append(Finding.of(error, manifests.namespace.key(listing.manifests[-1].id)))
    versions, _ = await check_compactions(database.store, compactions, listing.compactions, found)
    manifest_count, _ = await check_manifests(
        database.store,
        manifests,
        listing,
        latest_id=listing.manifests[-1].id,
        wanted=(),
        findings=found,
        use=lambda _, __: None,
    )
    versions += manifest_count
    seen: dict[tuple[str, Code], Finding] = {}
    for finding in found.listed:
        seen.setdefault((finding.object, finding.code), finding)
    return VerifyReport(
        path=database.root,
        state=state,
        depth=options.depth,
        is_complete=False,
        cannot_know=cannot_know(options.depth),
        remarks=("without the newest manifest the required objects are unknown: SSTs and WAL were not checked",),
        findings=tuple(seen.values()),
        findings_left_out=found.left_out,
        objects=listing.objects,
        versions=versions,
    )


def _report(database: VerifyTarget, inventory: Inventory, options: VerifyOptions, state: DatabaseState) -> VerifyReport:
    """Return the report without the results of reading the objects."""
    latest = inventory.latest
    remarks = []
    sources = ", ".join(sorted({each.path for each in latest.external_dbs}))
    if state is DatabaseState.DESTROYED:
        remarks.append("it is marked as destroyed: GC deletes it once it has no checkpoint left")
    if not latest.initialized and inventory.latest_id == 1:
        state = DatabaseState.HALF_BUILT_CLONE
        remarks.append(
            f"a clone of {sources or 'nothing'} was not completed: run the same shale clone create again, or"
            " delete it with shale db destroy --hard; until then it has no checkpoints of its own"
        )
    elif not latest.initialized:
        state = DatabaseState.SEALED
        remarks.append("it is sealed: a destroy was interrupted, or a half-built clone was opened")
    if any(not each.initialized for each in inventory.manifests.values()):
        remarks.append("its WAL was not checked for completeness")
    return VerifyReport(
        path=database.root,
        state=state,
        depth=options.depth,
        manifest_id=inventory.latest_id,
        remarks=tuple(remarks),
        orphans=inventory.orphans,
        orphan_totals=inventory.orphan_totals,
        borrowed=tuple(
            Borrowed(each.path, len(each.sst_ids), str(each.final_checkpoint_id) if each.final_checkpoint_id else None)
            for each in latest.external_dbs
        ),
        checkpoints=len(latest.checkpoints),
        objects=inventory.objects,
        versions=inventory.versions,
        ssts=len(inventory.ssts),
        wal_files=len(inventory.wal_files),
    )
