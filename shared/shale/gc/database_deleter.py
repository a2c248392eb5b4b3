"""Delete a soft-destroyed database after its grace period (docs/reference/protocol.md 8.8).

The other tasks of the collector stop before the deletion starts: they would treat the deleted boundary file as a
lost one and panic.
"""

from collections.abc import Callable

import anyio

from shale.errors import LatestRecordMissing, ProtocolPanic, ShaleError, UnavailableError
from shale.gc.database import GcDatabase
from shale.gc.destroy_plan import DeletionStage, ObjectToDelete
from shale.gc.hard_destroy import DestroyTarget
from shale.gc.metrics import GcMetrics
from shale.gc.options import GcOptions, Task, TaskOptions
from shale.gc.passes import PROGRESS_S, GcProgress
from shale.gc.soft_destroy import DeletionPhase, DeletionStatus, delete_due_database, read_deletion_status
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.markers import is_being_deleted, is_destroyed
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger

RESOURCE = "database"
"""The label of the whole database, where other labels are tasks."""
_TASKS = {
    DeletionStage.COMPACTED: Task.COMPACTED,
    DeletionStage.WAL: Task.WAL,
    **dict.fromkeys((DeletionStage.COMPACTIONS, DeletionStage.COMPACTION_RECORDS), Task.COMPACTIONS),
    DeletionStage.MANIFEST: Task.MANIFEST,
    DeletionStage.LATEST_MANIFEST: Task.MANIFEST,
}
_LOOKS, _LOOK_PAUSE_S = 3, 0.5
log = get_logger("gc")


class DatabaseDeleter:
    """Checks for the marker periodically and deletes the database when it is due.

    Attributes:
        state: the result of the last check.
        progress: the objects deleted so far.
    """

    def __init__(self, database: GcDatabase, options: Callable[[], GcOptions], instruments: GcMetrics) -> None:
        self.state = DeletionStatus(DeletionPhase.ALIVE)
        self.progress = GcProgress()
        self._database = database
        self._options = options
        self._instruments = instruments
        self._target = DestroyTarget(
            store=database.store,
            root=database.root,
            env=database.env,
            metrics=database.metrics,
            wal_store=database.wal_store if database.has_own_wal_store else None,
            manifest_write_version=database.protocol.manifest_write_version,
        )

    async def watch(self, everything: anyio.CancelScope) -> None:
        """Check periodically; cancel ``everything`` and return once the database is due."""
        while True:
            if await self._look():
                everything.cancel()
                return
            await anyio.sleep(self._interval_s())

    async def finish(self) -> None:
        """Delete the database if it is due; after a failure, wait for one interval."""
        if self.state.phase is not DeletionPhase.DUE:
            return
        phase = DeletionPhase.DUE
        try:
            phase = await self._delete()
        except ProtocolPanic:
            raise
        except ShaleError as error:
            log.error(Event.GC_TASK_FAILED, resource=RESOURCE, error=error)
        if phase is not DeletionPhase.GONE:
            await anyio.sleep(self._interval_s())

    async def delete_if_due(self) -> bool:
        """Delete the database if it is due now, for a single run; return whether it was deleted.

        Raises:
            ShaleError: the marker cannot be read, or the deletion failed; a rerun continues.
        """
        grace_s = self._options().delete_grace_period_s
        if grace_s is None:
            return False
        self.state = await self._look_once(grace_s)
        return self.state.phase is DeletionPhase.DUE and await self._delete() is DeletionPhase.GONE

    async def is_caused_by_deletion(self, error: LatestRecordMissing | ProtocolPanic) -> bool:
        """Return whether a destroy of this database, by any process, explains the error of a task.

        A destroy deletes manifests and boundary files, which tasks then miss.
        """
        store, root = self._database.store, self._database.root
        is_missing = isinstance(error, LatestRecordMissing)
        try:
            if is_missing:
                return await is_destroyed(store, root)
            return await is_being_deleted(store, root) or await self._has_no_manifest()
        except UnavailableError:
            return is_missing  # a missing manifest is checked again at the next interval; a panic must not wait

    async def is_gone(self) -> bool:
        """Return whether another process deleted the database, after a task has found no manifest.

        One list is no proof: it may be older than the database.
        """
        try:
            if await self._database.manifests.has_known():
                return False
            for looks in range(_LOOKS):
                if looks:
                    await anyio.sleep(_LOOK_PAUSE_S)
                if not await self._has_no_manifest():
                    return False
        except UnavailableError:
            return False
        return True

    async def _has_no_manifest(self) -> bool:
        database = self._database
        manifests = ManifestStore(database.store, database.root, database.env, database.metrics, database.protocol)
        return await manifests.try_read_latest() is None

    async def _look(self) -> bool:
        grace_s = self._options().delete_grace_period_s
        if grace_s is None:
            return False
        try:
            found = await self._look_once(grace_s)
        except ProtocolPanic:
            raise
        except ShaleError as error:
            log.error(Event.GC_TASK_FAILED, resource=RESOURCE, error=error)
            return False
        if self.state.phase is not DeletionPhase.GONE:  # a task of the collector may have found this meanwhile
            self.state = found
        return self.state.phase is DeletionPhase.DUE

    async def _look_once(self, grace_s: float) -> DeletionStatus:
        found = await read_deletion_status(self._target, grace_s=grace_s)
        self._instruments.destroyed(found.mark)
        return found

    async def _delete(self) -> DeletionPhase:
        self.progress = GcProgress(logged_s=self._database.env.clock.monotonic_s())
        self.state = await delete_due_database(self._target, self.state.mark, self._count)
        return self.state.phase

    def _count(self, gone: ObjectToDelete) -> None:
        self.progress.listed += 1
        self.progress.planned += 1
        self.progress.deleted += 1
        self.progress.deleted_bytes += gone.size
        task = _TASKS.get(gone.stage)
        if task is Task.WAL and not gone.size:
            task = Task.WAL_FENCE
        if task is not None:
            self._instruments.deleted(task, 1, gone.size)
        now_s = self._database.env.clock.monotonic_s()
        if now_s - self.progress.logged_s >= PROGRESS_S:
            self.progress.logged_s = now_s
            log.info(Event.GC_PROGRESS, resource=RESOURCE, deleted=self.progress.deleted)

    def _interval_s(self) -> float:
        """Return the shortest interval of all enabled tasks."""
        options = self._options()
        tasks = (options.task(task) for task in options.enabled)
        return min((task.interval_s for task in tasks if task is not None), default=TaskOptions().interval_s)
