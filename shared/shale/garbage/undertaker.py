"""The part of a collector that deletes databases which were destroyed softly (docs/protocol.md 8.8).

The other tasks of the process stop before it begins: they would take the boundary that it deletes for one that
disappeared.
"""

from collections.abc import Callable

import anyio

from shale.errors import LatestRecordMissing, ProtocolPanic, ShaleError, UnavailableError
from shale.garbage.database import Database
from shale.garbage.destroy import DestroyTarget
from shale.garbage.destroy_plan import Condemned, Stage
from shale.garbage.instruments import GcInstruments
from shale.garbage.options import GcOptions, Task, TaskOptions
from shale.garbage.passes import PROGRESS_S, Progress
from shale.garbage.soft_destroy import Doom, DoomState, finish_destroyed, look_at_doom
from shale.protocol.manifest_store import ManifestStore
from shale.protocol.markers import is_being_deleted, is_destroyed
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger

RESOURCE = "database"
"""What the whole of a database is called where others are tasks."""
_TASKS = {
    Stage.COMPACTED: Task.COMPACTED,
    Stage.WAL: Task.WAL,
    Stage.COMPACTIONS: Task.COMPACTIONS,
    Stage.MANIFEST: Task.MANIFEST,
    Stage.LATEST_MANIFEST: Task.MANIFEST,
}
log = get_logger("gc")


class Undertaker:
    """Looks for the marker at every tick; ``state`` is what it saw last, ``progress`` what it deleted."""

    def __init__(self, database: Database, options: Callable[[], GcOptions], instruments: GcInstruments) -> None:
        self.state = DoomState(Doom.ALIVE)
        self.progress = Progress()
        self._database = database
        self._options = options
        self._instruments = instruments
        self._target = DestroyTarget(
            store=database.store,
            root=database.root,
            env=database.env,
            metrics=database.metrics,
            wal_store=database.wal_store if database.has_own_wal_store else None,
        )

    async def watch(self, everything: anyio.CancelScope) -> None:
        """Cancel ``everything`` once the database is due; until then, look again and again."""
        while True:
            if await self._look():
                everything.cancel()
                return
            await anyio.sleep(self._interval_s())

    async def finish(self) -> None:
        """Delete the database if it is due; if that fails, wait as long as to the next tick."""
        if self.state.doom is not Doom.DUE:
            return
        doom = Doom.DUE
        try:
            doom = await self._delete()
        except ProtocolPanic:
            raise
        except ShaleError as error:
            log.error(Event.GC_TASK_FAILED, resource=RESOURCE, error=error)
        if doom is not Doom.GONE:
            await anyio.sleep(self._interval_s())

    async def bury(self) -> bool:
        """Delete the database if it is due now, for a single run; false: it stays.

        Raises:
            ShaleError: the marker cannot be read, or the deletion failed; run it again.
        """
        grace_s = self._options().db_delete_grace_s
        if grace_s is None:
            return False
        await self._look_once(grace_s)
        return self.state.doom is Doom.DUE and await self._delete() is Doom.GONE

    async def explains(self, error: LatestRecordMissing | ProtocolPanic) -> bool:
        """Whether what a task has met is somebody's destroy of this database, which is under way.

        A manifest or a boundary that disappears is what a destroy leaves on its way.
        """
        store, root = self._database.store, self._database.root
        is_missing = isinstance(error, LatestRecordMissing)
        try:
            if is_missing:
                return await is_destroyed(store, root)
            return await is_being_deleted(store, root) or await self._is_gone()
        except UnavailableError:
            return is_missing  # the next tick asks again, but a panic waits for nobody

    async def _is_gone(self) -> bool:
        database = self._database
        manifests = ManifestStore(database.store, database.root, database.env, database.metrics, database.protocol)
        return await manifests.try_read_latest() is None

    async def _look(self) -> bool:
        grace_s = self._options().db_delete_grace_s
        if grace_s is None:
            return False
        try:
            await self._look_once(grace_s)
        except ProtocolPanic:
            raise
        except ShaleError as error:
            log.error(Event.GC_TASK_FAILED, resource=RESOURCE, error=error)
            return False
        return self.state.doom is Doom.DUE

    async def _look_once(self, grace_s: float) -> None:
        self.state = await look_at_doom(self._target, grace_s=grace_s)
        self._instruments.destroyed(self.state.mark)

    async def _delete(self) -> Doom:
        self.progress = Progress(told_s=self._database.env.clock.monotonic_s())
        self.state = await finish_destroyed(self._target, self.state.mark, self._count)
        return self.state.doom

    def _count(self, gone: Condemned) -> None:
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
        if now_s - self.progress.told_s >= PROGRESS_S:
            self.progress.told_s = now_s
            log.info(Event.GC_PROGRESS, resource=RESOURCE, deleted=self.progress.deleted)

    def _interval_s(self) -> float:
        """As often as the most frequent task runs."""
        options = self._options()
        tasks = (options.task(task) for task in options.enabled)
        return min((task.interval_s for task in tasks if task is not None), default=TaskOptions().interval_s)
