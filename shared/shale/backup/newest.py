"""Finds the newest complete backup of each database at a place, for metrics: it reads each document once."""

from functools import partial

from shale.backup.backup_store import BackupStore
from shale.concurrency.gather import gather
from shale.core.lazy_dataclass import dataclass
from shale.types import Ulid  # noqa: TC001


@dataclass(frozen=True, slots=True)
class _Document:
    path: str
    started_ms: int


class NewestBackups:
    """The complete backups at a place, without their objects."""

    def __init__(self, store: BackupStore) -> None:
        self._store = store
        self._known: dict[Ulid, _Document] = {}

    async def refresh(self) -> None:
        """List the documents and read the new ones.

        Raises:
            CorruptionError: a document is damaged.
        """
        ids = await self._store.ids()
        new = [each for each in ids if each not in self._known]
        read = await gather([partial(self._store.try_read, each) for each in new]) if new else []
        found = {each.id: _Document(each.path, each.started_ms) for each in read if each is not None}
        self._known = {each: self._known[each] for each in ids if each in self._known} | found

    def started_ms(self, path: str) -> int | None:
        """Return when the newest backup of a database began, in milliseconds since 1970; ``None``: it has none."""
        return max((each.started_ms for each in self._known.values() if each.path == path), default=None)
