"""A store that applies deletions again, later: duplicates of requests whose answer was lost."""

from collections.abc import Mapping, Sequence

from shale.errors import ShaleError, UnavailableError
from shale.store.memory import MemoryStore


class LateDeletes(MemoryStore):
    """Remembers each request to delete.

    ``loses_copies``: requests to delete copies have no effect and no answer; they arrive later.
    """

    def __init__(self) -> None:
        super().__init__(url="memory://backups/")
        self.deleted: list[str] = []
        self.loses_copies = False

    async def delete(self, key: str) -> None:
        """Delete, and remember the request."""
        self.deleted.append(key)
        if self._is_lost(key):
            raise UnavailableError("no answer")
        await super().delete(key)

    async def delete_many(self, keys: Sequence[str]) -> Mapping[str, ShaleError]:
        """Delete, and remember the request."""
        self.deleted += keys
        await super().delete_many([key for key in keys if not self._is_lost(key)])
        return {key: UnavailableError("no answer") for key in keys if self._is_lost(key)}

    def _is_lost(self, key: str) -> bool:
        return self.loses_copies and "/objects/" in key

    async def repeat_deletes(self) -> None:
        """Apply all requests so far again."""
        await super().delete_many(self.deleted)
