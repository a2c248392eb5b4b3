"""Makes a backup: copies what one version of the manifest needs, in an order that an interruption cannot harm.

A checkpoint keeps the state.  The plan comes first, which keeps the copies from a prune.  Then the small objects: the
manifest, and the WAL files, which the database may delete soon.  Then the SSTs that the backup store does not have.
Then all copies are listed once more.  The document is last (``shale.backup.complete``).  Until then the backup is not
visible, and another call continues it.

WAL files after those that the manifest knows are copied, too, so a backup has all rows that were durable at its start.
With ``keep_wal``, files before them are copied if no file is missing since the last backup: then a restore reaches
every sequence number between two backups.
"""

from dataclasses import replace
from functools import partial

from shale.backup.backup_store import BackupStore
from shale.backup.begin import BackupSource, BegunBackup, CreateOptions, begin_backup, clean_up
from shale.backup.complete import complete_backup, require_in_progress
from shale.backup.copying import ObjectReader, OnProgress, Progress, copy_object, digest_bytes, for_each
from shale.backup.document import Backup, BackupObject, ObjectKind
from shale.backup.journal import Journal
from shale.backup.names import hashed_copy
from shale.backup.planner import KnownCopies, SourceSst, first_wal_file, lost_copies, plan_copies
from shale.concurrency.gather import gather
from shale.core.bytes_like import BytesLike
from shale.errors import CorruptionError, InvalidDbState, ManifestMissing, WalTruncated
from shale.format.names import manifest_key, visible_range_key
from shale.protocol.manifest_store import StoredManifest
from shale.protocol.markers import require_not_destroyed
from shale.protocol.wal_completeness import require_wal_store
from shale.protocol.wal_store import WalStore
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.types import Manifest

_WAL_AT_ONCE = 4
log = get_logger("backup")


async def create_backup(
    source: BackupSource, target: BackupStore, options: CreateOptions, on_progress: OnProgress | None = None
) -> Backup:
    """Make a backup, or continue an interrupted one.

    Raises:
        LatestRecordMissing: there is no database.
        InvalidDbState: it is half built or destroyed, or a prune runs, or has removed this backup.
        InvalidRequestError: its WAL is in another store, which was not given.
        AmbiguousCheckpoint: see ``resolve_checkpoint``.
        SstMissing, WalTruncated, ManifestMissing: the database lacks an object.
    """
    await require_not_destroyed(source.store, source.root)
    stored = await source.manifests.load()
    if not stored.value.initialized:
        raise InvalidDbState(f"the database at {source.root or '/'} is half built: a clone or a restore has not ended")
    require_wal_store(stored.value, source.root, source.wal)
    begun = await begin_backup(source, target, options, stored)
    return await _BackupRun(source, target, options, stored=stored, begun=begun, on_progress=on_progress).run()


class _BackupRun:
    """One run of a backup."""

    def __init__(
        self,
        source: BackupSource,
        target: BackupStore,
        options: CreateOptions,
        *,
        stored: StoredManifest,
        begun: BegunBackup,
        on_progress: OnProgress | None,
    ) -> None:
        self._source, self._target, self._options = source, target, options
        self._stored, self._begun, self._plan = stored, begun, begun.plan
        self._on_progress = on_progress
        self._journal = Journal(target, begun.plan)
        self._wal = WalStore(source.wal or source.store, source.root)
        # A listing that follows the plan and the look for a lock cannot show what a prune deletes later.
        self._present: dict[str, int] = {}
        self._known = KnownCopies((), (), {})

    async def run(self) -> Backup:
        """Copy what is missing and complete the backup."""
        manifest = self._begun.manifest
        self._present = await self._target.present()
        self._known = KnownCopies(self._begun.reusable, self._plan.copied.values(), self._present)
        small = [await self._copy_manifest(), *await self._copy_visible_range(), *await self._copy_wal(manifest)]
        objects = (*small, *await self._copy_ssts())
        await self._require_all(objects)
        complete = {found.key for each in self._begun.earlier for found in each.objects}
        added = [each for each in objects if each.key not in complete]
        backup = await complete_backup(
            self._target,
            Backup(
                id=self._plan.plan_id,
                started_ms=self._plan.started_ms,
                completed_ms=self._source.env.clock.now_ms(),
                source=self._source.url,
                path=self._source.root,
                manifest_id=self._plan.manifest_id,
                checkpoint_id=self._plan.checkpoint_id,
                last_l0_seq=manifest.last_l0_seq,
                replay_after_wal_id=manifest.replay_after_wal_id,
                objects=objects,
                copied_objects=len(added),
                copied_bytes=sum(each.size for each in added),
            ),
        )
        log.info(Event.BACKUP_CREATED, backup_id=str(backup.id), objects=len(objects), bytes=backup.copied_bytes)
        await clean_up(self._target, self._stored, self._plan)
        return backup

    async def _copy_manifest(self) -> BackupObject:
        number = self._plan.manifest_id
        found = await self._source.store.get(manifest_key(self._source.root, number))
        if found is None:
            raise ManifestMissing(number)
        return await self._put_hashed(ObjectKind.MANIFEST, "manifest", str(number), found.data)

    async def _copy_visible_range(self) -> list[BackupObject]:
        found = await self._source.store.get(visible_range_key(self._source.root))
        if found is None:
            return []
        return [await self._put_hashed(ObjectKind.VISIBLE_RANGE, "gc", "visible_range", found.data)]

    async def _copy_wal(self, manifest: Manifest) -> list[BackupObject]:
        """Copy the WAL files that replay needs, those after them, and with ``keep_wal`` those before them."""
        replay_after = manifest.replay_after_wal_id
        journaled = {int(each.name): each for each in self._plan.copied.values() if each.kind is ObjectKind.WAL}
        sizes = {number: each.size for number, each in journaled.items()}
        sizes |= {int(each.id): each.size for each in await self._wal.list()}
        first = replay_after + 1
        if self._options.keep_wal:
            first = first_wal_file(self._begun.earlier, self._source.root, replay_after, sizes)
        last = first - 1
        while last + 1 in sizes:
            last += 1
        if last < manifest.next_wal_sst_id - 1 or await self._is_lost(last + 1, manifest, max(sizes, default=0)):
            raise WalTruncated(last + 1, f"{self._wal.key(last + 1)} is not there")
        copied: list[BackupObject] = []
        for start in range(first, last + 1, _WAL_AT_ONCE):
            numbers = range(start, min(start + _WAL_AT_ONCE, last + 1))
            copied += await gather([partial(self._copy_wal_file, each, journaled.get(each)) for each in numbers])
        return copied

    async def _is_lost(self, number: int, manifest: Manifest, last: int) -> bool:
        """Return whether a WAL file is missing before ``last`` that the manifest does not know, and GC has not deleted.

        Files are written in order, so the rows after it were durable.  In a parallel WAL they may not be.
        """
        if number > last or manifest.has_parallel_wal or await self._wal.exists(number):
            return False
        # Read after the file was found missing: GC deletes a file after the manifest has moved on, never before.
        return (await self._source.manifests.read_latest()).value.replay_after_wal_id < number

    async def _copy_wal_file(self, number: int, journaled: BackupObject | None) -> BackupObject:
        if journaled is not None and self._present.get(journaled.key) == journaled.size:
            return journaled
        data = await self._wal.read(number)
        if data is None:
            raise WalTruncated(number, f"{self._wal.key(number)} was deleted during the backup: run it again")
        return await self._put_hashed(ObjectKind.WAL, "wal", f"{number:020}", data)

    async def _put_hashed(self, kind: ObjectKind, folder: str, name: str, data: BytesLike) -> BackupObject:
        """Store a small object, unless there is a copy."""
        digest = digest_bytes(data)
        copy = BackupObject(
            kind=kind,
            name=name,
            key=hashed_copy(self._source.root, folder, name, digest.sha256, self._plan.plan_id),
            size=digest.size,
            sha256=digest.sha256,
            encryption_key=digest.encryption_key,
        )
        known = self._known.intact(copy.identity, copy.size)
        if known is not None:
            return known
        copy = replace(copy, key=self._known.key_of_copy(copy.identity, copy.size, copy.key))
        # An interruption may have left the object without a record; its name has the checksum.
        if self._present.get(copy.key) != copy.size:
            await self._target.store.put(self._target.key(copy.key), data)
        await self._journal.add(copy)
        return copy

    async def _copy_ssts(self) -> list[BackupObject]:
        plan = plan_copies(self._begun.ssts, self._known)
        progress = Progress("copy", len(plan.copy), plan.size, self._on_progress)
        copied: list[BackupObject] = []

        async def copy(sst: SourceSst) -> None:
            reader = ObjectReader(self._source.store, sst.key, sst.size, self._source.env, progress.read)
            digest = await copy_object(reader, self._target.store, self._target.key(sst.copy))
            found = BackupObject(
                kind=ObjectKind.SST,
                name=str(sst.id),
                key=sst.copy,
                size=digest.size,
                sha256=digest.sha256,
                encryption_key=digest.encryption_key,
            )
            copied.append(found)
            await self._journal.add(found)
            progress.ended()

        await for_each(plan.copy, copy, self._options.concurrency)
        await self._journal.flush()
        return sorted((*plan.reuse, *copied), key=lambda each: each.key)

    async def _require_all(self, objects: tuple[BackupObject, ...]) -> None:
        """Check that all copies are there.

        Raises:
            InvalidDbState: a prune has removed this backup.
            CorruptionError: one is not there: another process has deleted or changed it.
        """
        lost = lost_copies(objects, await self._target.present())
        if lost:
            await require_in_progress(self._target, self._plan.plan_id)
            raise CorruptionError(
                f"{len(lost)} copies are missing or have another size, such as this one: another process changes the "
                "backup store; run this again",
                path=self._target.key(lost[0].key),
            )
