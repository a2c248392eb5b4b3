"""Records what a backup has copied, so that an interruption costs little."""

from shale.backup.backup_store import BackupStore, UnfinishedBackup
from shale.backup.document import BackupObject

OBJECTS_MAX = 100
BYTES_MAX = 32 << 20
"""At most so many bytes, and what is being copied, are copied again after an interruption."""


class Journal:
    """Collects copied objects and writes a list when they are many or large."""

    def __init__(self, store: BackupStore, plan: UnfinishedBackup) -> None:
        self._store = store
        self._plan_id = plan.plan_id
        self._waiting: list[BackupObject] = []

    async def add(self, copied: BackupObject) -> None:
        """Record an object, at the latest with the next ``flush``."""
        self._waiting.append(copied)
        if len(self._waiting) >= OBJECTS_MAX or sum(each.size for each in self._waiting) >= BYTES_MAX:
            await self.flush()

    async def flush(self) -> None:
        """Write what is not written yet."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            await self._store.record(self._plan_id, waiting)
