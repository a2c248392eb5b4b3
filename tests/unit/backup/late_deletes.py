"""A store that applies deletions again, later: duplicates of requests whose answer was lost."""

from collections.abc import Mapping, Sequence

from shale.errors import ShaleError, UnavailableError
from shale.store.memory import MemoryStore


class LateDeletes(MemoryStore):
    """Remembers each request to delete.

    ``loses_copies``: the first requests to delete copies have no effect and no answer; they arrive later.
    """

    def __init__(self) -> None:
        super().__init__(url="memory://backups/")
        self.deleted: list[str] = []
        self.loses_copies = False

    async def delete(self, key: str) -> None:
        """Delete, and remember the request."""
        self.deleted.append(key)
        await super().delete(key)

    async def delete_many(self, keys: Sequence[str]) -> Mapping[str, ShaleError]:
        """Delete, and remember the request."""
        self.deleted += keys
        if self.loses_copies and any("/objects/" in key for key in keys):
            return dict.fromkeys(keys, UnavailableError("no answer"))
        return await super().delete_many(keys)

    async def repeat_deletes(self) -> None:
        """Apply all requests so far again."""
        await super().delete_many(self.deleted)
