"""Restores a backup: into an empty path, or over a database, which keeps what a return to its state needs.

The steps follow those of a clone.  The manifest is written first and is not initialised, so that no process opens it
and GC keeps the SSTs that it names.  The range, the SSTs and the WAL files follow.  The last write sets
``initialized``.  After an interruption, the same call continues.

Over a database, the restored manifest is its next version, with both epochs raised, so an older writer or coordinator
can write nothing more.  A checkpoint keeps the state before.  The restored WAL files get numbers after those of the
database, and a fence before them.  Compactions in progress are dropped: they could commit rows of the later state.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from shale.backup.backup_store import BackupStore
from shale.backup.copying import (
    CONCURRENCY,
    ObjectReader,
    OnProgress,
    Progress,
    copy_object,
    digest_bytes,
    digest_of,
    for_each,
    require_sha256,
)
from shale.backup.document import Backup, BackupObject, ObjectKind
from shale.backup.planner import joined_wal
from shale.backup.restored_manifest import in_place, is_same_state, restored
from shale.backup.restored_wal import RestoredWal
from shale.backup.wal_end import WalEnd, wal_until
from shale.core.lazy_dataclass import dataclass
from shale.env import Env
from shale.errors import CorruptionError, InvalidDbState, ObjectVersionExists
from shale.format.blocks.transform import BlockTransformer
from shale.format.manifest import decode_manifest
from shale.format.names import (
    compacted_prefix,
    compactions_prefix,
    gc_prefix,
    parse_attempt_range_key,
    sst_key,
    visible_range_key,
    wal_prefix,
)
from shale.protocol.checkpoints import RESTORE_UNDO_PREFIX
from shale.protocol.compactions_store import CompactionsStore
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.markers import require_not_destroyed
from shale.protocol.versioned import Versioned
from shale.protocol.visible_range import decode_visible_range, write_visible_range
from shale.protocol.wal_completeness import require_wal_store
from shale.protocol.wal_store import WalStore
from shale.store.port import ObjectStore
from shale.store.wrapper import cas_of
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.types import Compactions, Epoch, KeyRange, Manifest, Ulid, WalId
from shale.types.writer_sign import WriterPresence, writer_status

log = get_logger("backup")


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreTarget:
    """The place of the restored database.  ``wal``: the store of its WAL, if that is separate."""

    store: ObjectStore
    root: str
    env: Env
    manifests: ManifestStore
    compactions: CompactionsStore
    wal: ObjectStore | None = None
    transformer: BlockTransformer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOptions:
    """Options of a restore.

    Args:
        to_seq: restore the rows up to this sequence number; ``None``: all of the backup.
        in_place: replace the database at the path.
        concurrency: SSTs that are copied concurrently.
    """

    to_seq: int | None = None
    in_place: bool = False
    concurrency: int = CONCURRENCY


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreResult:
    """A restored database.

    Args:
        backup_id: the backup.
        path: the database.
        manifest_id: its version.
        last_seq: the newest sequence number, if the WAL was read for ``to_seq``.
        copied_objects, copied_bytes: SSTs that were copied; others were there.
        wal_files: restored WAL files.
        undo_checkpoint: id of the checkpoint of the state before, if the restore replaced a database.
    """

    backup_id: Ulid
    path: str
    manifest_id: int
    copied_objects: int
    copied_bytes: int
    wal_files: int
    last_seq: int | None = None
    undo_checkpoint: str | None = None


async def restore_backup(
    source: BackupStore,
    backup: Backup,
    later: Sequence[Backup],
    target: RestoreTarget,
    options: RestoreOptions,
    *,
    on_progress: OnProgress | None = None,
) -> RestoreResult:
    """Restore a backup.

    Args:
        source: the store of the backup.
        backup: what to restore.
        later: later backups of the same path, ascending, whose WAL files ``to_seq`` may need.
        target: the place of the database.
        options: what to restore, and how.
        on_progress: called with the progress.

    Raises:
        InvalidDbState: there is a database at the path, or remains of one; a writer is alive; it is being destroyed.
        InvalidRequestError: the backup does not have ``to_seq``, or the WAL store or backend is not the one it needs.
        CorruptionError: a copy is damaged or missing.
    """
    await require_not_destroyed(target.store, target.root)
    manifest = await read_manifest(source, backup)
    require_wal_store(manifest, target.root, target.wal)
    run = _RestoreRun(source, backup, target, options, on_progress)
    end = await run.wal_end(manifest, later)
    return await run.run(manifest, end)


async def read_manifest(source: BackupStore, backup: Backup) -> Manifest:
    """Read the manifest of a backup."""
    data = await read_copy(source, backup.manifest)
    return decode_manifest(bytes(data), path=source.key(backup.manifest.key))


async def read_copy(source: BackupStore, found: BackupObject) -> memoryview:
    """Read a small object of a backup, and check it.

    Raises:
        CorruptionError: it is missing, or its checksum differs.
    """
    key = source.key(found.key)
    read = await source.store.get(key)
    if read is None:
        raise CorruptionError("the copy is missing", path=key)
    require_sha256(digest_bytes(read.data), found.sha256, key)
    return read.data


class _RestoreRun:
    """One run of a restore."""

    def __init__(
        self,
        source: BackupStore,
        backup: Backup,
        target: RestoreTarget,
        options: RestoreOptions,
        on_progress: OnProgress | None,
    ) -> None:
        self._source, self._backup, self._target = source, backup, target
        self._options, self._on_progress = options, on_progress
        self._wal = WalStore(target.wal or target.store, target.root, transformer=target.transformer)
        self._copied: list[BackupObject] = []

    async def wal_end(self, manifest: Manifest, later: Sequence[Backup]) -> WalEnd:
        """Return the WAL files to restore."""
        to_seq = self._options.to_seq
        if to_seq is None:
            return WalEnd(files=joined_wal(self._backup, ()))
        files = joined_wal(self._backup, later)
        read = partial(read_copy, self._source)
        return await wal_until(files, read, manifest, to_seq, self._target)

    async def run(self, manifest: Manifest, end: WalEnd) -> RestoreResult:
        """Write the manifest, the objects, and the final manifest."""
        wanted = restored(manifest, end, cas_of(self._target.store))
        read = partial(read_copy, self._source)
        wal = RestoredWal(self._wal, end, manifest.replay_after_wal_id, read, self._target)
        found = await self._target.manifests.try_read_latest()
        if found is None:
            await self._require_no_remains()
            try:
                stored = await self._target.manifests.create_new(wanted)
            except ObjectVersionExists:
                raise self._occupied() from None
            base = Versioned(1, stored.value)
        elif not found.value.initialized and is_same_state(found.value, wanted):
            base = found
        elif self._options.in_place:
            base = await self._replace(found, wanted)
        elif found.id == 2 and is_same_state(found.value, wanted) and await wal.is_restored(found.value):
            return self._result(found, end)  # a repeated call
        else:
            raise self._occupied()
        replaces = base.id > 1
        if replaces:
            await self._drop_compactions(base.value.compactor_epoch)
        # Another restore to this path loses at the manifest: before it, this one would replace the range of the other.
        await self._write_visible_range()
        await self._copy_ssts()
        offset = await wal.fence(base.value) if replaces or not await wal.is_prefix() else 0
        await wal.write(offset)
        if not replaces:
            await wal.drop_others(offset)
        final = replace(
            base.value,
            initialized=True,
            replay_after_wal_id=WalId(manifest.replay_after_wal_id + offset),
            next_wal_sst_id=WalId(manifest.replay_after_wal_id + offset + 1 + end.count),
        )
        done = await self._target.manifests.commit(base.id, final)
        log.info(Event.BACKUP_RESTORED, backup_id=str(self._backup.id), path=self._target.root, manifest_id=done.id)
        return self._result(done, end)

    async def _write_visible_range(self) -> None:
        keys: KeyRange | None = None
        for found in self._backup.of_kind(ObjectKind.VISIBLE_RANGE):
            keys = decode_visible_range(await read_copy(self._source, found), path=self._source.key(found.key))
        target = self._target
        await write_visible_range(target.store, target.root, keys, target.env.ids.uuid())

    async def _require_no_remains(self) -> None:
        """Check that the path has no objects of a lost database, which would be taken for those of the restored one."""
        root = self._target.root
        stores = [(self._target.store, prefix(root)) for prefix in (gc_prefix, compactions_prefix, wal_prefix)]
        if self._target.wal is not None:
            stores.append((self._target.wal, wal_prefix(root)))
        for store, prefix in stores:
            for meta in await store.list(prefix):
                is_range = meta.key == visible_range_key(root) or parse_attempt_range_key(root, meta.key) is not None
                if not is_range:
                    raise InvalidDbState(f"{meta.key} is there without a manifest: restore into an empty path")

    def _occupied(self) -> InvalidDbState:
        return InvalidDbState(
            f"there is a database at {self._target.root or '/'}: restore into another path, or replace it with in_place"
        )

    async def _replace(self, found: Versioned[Manifest], wanted: Manifest) -> Versioned[Manifest]:
        """Write the half-built version that follows the newest one of the database."""
        target = self._target
        now_ms = target.env.clock.now_ms()
        status = writer_status(found.value, now_ms)
        if status.presence is WriterPresence.SIGNED:
            who = status.identity
            place = "" if who is None else f" on {who.host} at {who.endpoint or 'no endpoint'}"
            raise InvalidDbState(
                f"the writer of {target.root or '/'}{place} is alive: stop it; a crashed one counts as alive until "
                f"its checkpoint expires, {(status.expire_s or 0) - now_ms // 1000} s from now"
            )
        if found.value.has_parallel_wal:
            raise InvalidDbState(
                f"{target.root or '/'} has a parallel WAL, which a restore in place cannot fence: restore into another "
                "path"
            )
        next_ = in_place(found, wanted, target.env.ids.uuid(), f"{RESTORE_UNDO_PREFIX}{self._backup.id}", now_ms)
        try:
            return await target.manifests.commit(found.id, next_)
        except ObjectVersionExists:
            raise InvalidDbState(
                f"manifest {found.id + 1} of {target.root or '/'} was written meanwhile: stop its processes"
            ) from None

    async def _drop_compactions(self, epoch: Epoch) -> None:
        latest = await self._target.compactions.try_read_latest()
        if latest is None:
            return
        stored = await self._target.compactions.load()

        def change(current: Versioned[Compactions]) -> Compactions:
            return Compactions(compactor_epoch=Epoch(max(epoch, current.value.compactor_epoch)))

        await stored.apply(change)

    async def _copy_ssts(self) -> None:
        """Copy the SSTs that the path does not have; one that is there counts only with the right checksum."""
        target, env = self._target, self._target.env
        ssts = self._backup.of_kind(ObjectKind.SST)
        listed = await target.store.list(compacted_prefix(target.root))
        present = {meta.key: meta.size for meta in listed}
        progress = Progress("restore", len(ssts), sum(each.size for each in ssts), self._on_progress)

        async def copy(found: BackupObject) -> None:
            sst_id = Ulid.parse(found.name)
            assert sst_id is not None, "the document was checked when it was read"
            key = sst_key(target.root, sst_id)
            if present.get(key) == found.size:
                there = await digest_of(ObjectReader(target.store, key, found.size, env, lambda _: None))
                if there.sha256 == found.sha256:
                    progress.read(found.size)
                    progress.ended()
                    return
            reader = ObjectReader(self._source.store, self._source.key(found.key), found.size, env, progress.read)
            await copy_object(reader, target.store, key, found.sha256)
            self._copied.append(found)
            progress.ended()

        await for_each(ssts, copy, self._options.concurrency)

    def _result(self, done: Versioned[Manifest], end: WalEnd) -> RestoreResult:
        name = f"{RESTORE_UNDO_PREFIX}{self._backup.id}"
        undos = [each for each in done.value.checkpoints if (each.name or "").startswith(RESTORE_UNDO_PREFIX)]
        # That of another backup, if its restore was interrupted.
        undo = next((each for each in undos if each.name == name), undos[-1] if undos else None)
        return RestoreResult(
            backup_id=self._backup.id,
            path=self._target.root,
            manifest_id=done.id,
            copied_objects=len(self._copied),
            copied_bytes=sum(each.size for each in self._copied),
            wal_files=end.count,
            last_seq=end.last_seq,
            undo_checkpoint=None if undo is None else str(undo.id),
        )
