"""``shale.sync.Admin``: administration of a database from outside; its calls block.

Callbacks such as ``on_progress`` are called in the thread of the event loop.
"""

from typing import Any, Self

from shale.admin import admin, backups, checkpoints, clones, encryption, gc, states
from shale.concurrency.blocking import BlockingHandle, blocking, blocking_iterator, parameters_of
from shale.engine.wal import reader
from shale.store.location import UrlOrPath
from shale.store.options import StoreOptions
from shale.store.port import ObjectStore
from shale.sync.loop_thread import loop_thread


class CheckpointAdmin(BlockingHandle[checkpoints.CheckpointAdmin]):
    """See ``shale.admin.checkpoints.CheckpointAdmin``."""

    create = blocking(checkpoints.CheckpointAdmin.create)
    refresh = blocking(checkpoints.CheckpointAdmin.refresh)
    delete = blocking(checkpoints.CheckpointAdmin.delete)
    get = blocking(checkpoints.CheckpointAdmin.get)
    exclusive_ssts = blocking(checkpoints.CheckpointAdmin.exclusive_ssts)
    list = blocking(checkpoints.CheckpointAdmin.list)


class StateAdmin(BlockingHandle[states.StateAdmin]):
    """See ``shale.admin.states.StateAdmin``."""

    manifest = blocking(states.StateAdmin.manifest)
    manifests = blocking_iterator(states.StateAdmin.manifests)
    manifest_versions = blocking(states.StateAdmin.manifest_versions)
    compactions = blocking(states.StateAdmin.compactions)
    compactions_files = blocking_iterator(states.StateAdmin.compactions_files)
    compactions_versions = blocking(states.StateAdmin.compactions_versions)
    compaction = blocking(states.StateAdmin.compaction)
    state_view = blocking(states.StateAdmin.state_view)


class CloneAdmin(BlockingHandle[clones.CloneAdmin]):
    """See ``shale.admin.clones.CloneAdmin``."""

    create = blocking(clones.CloneAdmin.create)


class BackupAdmin(BlockingHandle[backups.BackupAdmin]):
    """See ``shale.admin.backups.BackupAdmin``."""

    create = blocking(backups.BackupAdmin.create)
    list = blocking(backups.BackupAdmin.list)
    unfinished = blocking(backups.BackupAdmin.unfinished)
    restore = blocking(backups.BackupAdmin.restore)
    verify = blocking(backups.BackupAdmin.verify)
    plan_prune = blocking(backups.BackupAdmin.plan_prune)
    prune = blocking(backups.BackupAdmin.prune)


class GcAdmin(BlockingHandle[gc.GcAdmin]):
    """See ``shale.admin.gc.GcAdmin``."""

    plan = blocking(gc.GcAdmin.plan)
    run_once = blocking(gc.GcAdmin.run_once)
    deletion_status = blocking(gc.GcAdmin.deletion_status)
    run = blocking(gc.GcAdmin.run)


class EncryptionAdmin(BlockingHandle[encryption.EncryptionAdmin]):
    """See ``shale.admin.encryption.EncryptionAdmin``."""

    status = blocking(encryption.EncryptionAdmin.status)
    rotate = blocking(encryption.EncryptionAdmin.rotate)


class WalReader(BlockingHandle[reader.WalReader]):
    """See ``shale.engine.wal.reader.WalReader``."""

    file_ids = blocking(reader.WalReader.file_ids)
    rows = blocking_iterator(reader.WalReader.rows)
    get = blocking(reader.WalReader.get)
    versions = blocking_iterator(reader.WalReader.versions)


class _BlockingAdmin(admin.Admin):
    _CALL = ("shale.sync.Admin(…)", "with")


class Admin(BlockingHandle[admin.Admin]):
    """Use with ``with``; see ``shale.Admin`` for arguments and errors."""

    @parameters_of(admin.Admin.__init__)
    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(_BlockingAdmin(*args, **keywords), loop_thread().call)

    def __enter__(self) -> Self:
        self._run(self._inner.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._inner.__aexit__(None, None, None))

    @property
    def clones(self) -> CloneAdmin:
        """Making this database a clone of others."""
        return CloneAdmin(self._inner.clones, self._run)

    def backups(
        self,
        where: UrlOrPath | None = None,
        *,
        store: UrlOrPath | ObjectStore | None = None,
        path: UrlOrPath | None = None,
        store_options: StoreOptions | None = None,
    ) -> BackupAdmin:
        """Return the backups at a place: create, list, restore, verify and prune them."""
        return BackupAdmin(self._inner.backups(where, store=store, path=path, store_options=store_options), self._run)

    @property
    def checkpoints(self) -> CheckpointAdmin:
        """Checkpoints: create, refresh, delete, list."""
        return CheckpointAdmin(self._inner.checkpoints, self._run)

    @property
    def states(self) -> StateAdmin:
        """Stored manifests and compactions files."""
        return StateAdmin(self._inner.states, self._run)

    @property
    def encryption(self) -> EncryptionAdmin:
        """Keys: which are needed, and their replacement."""
        return EncryptionAdmin(self._inner.encryption, self._run)

    @property
    def gc(self) -> GcAdmin:
        """Garbage collection: plan and run."""
        return GcAdmin(self._inner.gc, self._run)

    @property
    def wal(self) -> WalReader:
        """Rows straight from WAL files."""
        return WalReader(self._inner.wal, self._run)

    verify = blocking(admin.Admin.verify)
    destroy = blocking(admin.Admin.destroy)
    seq_at = blocking(admin.Admin.seq_at)
    time_of = blocking(admin.Admin.time_of)
    submit_compaction = blocking(admin.Admin.submit_compaction)
    compaction_status = blocking(admin.Admin.compaction_status)
    compactions = blocking(admin.Admin.compactions)
    wait_for_compaction = blocking(admin.Admin.wait_for_compaction)
    cancel_compaction = blocking(admin.Admin.cancel_compaction)
    retry_compaction = blocking(admin.Admin.retry_compaction)
