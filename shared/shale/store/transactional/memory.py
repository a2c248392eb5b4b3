"""A transactional store in memory, for tests, simulations and ``memory:///`` databases."""

from collections.abc import Sequence
from dataclasses import replace

from shale.store.transactional.port import SCHEMA_VERSION, CommitRecord, Slot


class MemoryTransactionalStore:
    """Records in dictionaries.  Every operation takes one step of the event loop, so all are linearizable."""

    def __init__(self, url: str = "memory:///") -> None:
        self._url = url
        self.by_destination: dict[str, CommitRecord] = {}
        self.marks: dict[str, int] = {}
        """All records and marks; tests inspect and change them here."""

    @property
    def url(self) -> str:
        """See ``TransactionalStore``."""
        return self._url

    @property
    def uncommitted(self) -> list[CommitRecord]:
        """The records whose destination may be missing."""
        return [record for record in self.by_destination.values() if not record.is_committed and not record.is_deleted]

    async def create_schema(self) -> None:
        """See ``TransactionalStore``."""

    async def schema_version(self) -> int | None:
        """See ``TransactionalStore``."""
        return SCHEMA_VERSION

    async def insert(self, record: CommitRecord, slot: Slot | None) -> CommitRecord | None:
        """See ``TransactionalStore``."""
        if (found := self.by_destination.get(record.destination)) is not None:
            return found
        if slot is not None and slot.id <= self.marks.get(slot.namespace, 0):
            return None
        self.by_destination[record.destination] = record
        return record

    async def get(self, destination: str) -> CommitRecord | None:
        """See ``TransactionalStore``."""
        return self.by_destination.get(destination)

    async def set_committed(self, record: CommitRecord) -> None:
        """See ``TransactionalStore``."""
        found = self.by_destination.get(record.destination)
        if found is not None and found.put_id == record.put_id:
            self.by_destination[record.destination] = replace(found, is_committed=True)

    async def set_deleted(self, destinations: Sequence[str]) -> None:
        """See ``TransactionalStore``."""
        for destination in destinations:
            if (found := self.by_destination.get(destination)) is not None:
                self.by_destination[destination] = replace(found, is_deleted=True)

    async def remove_deleted(self, destinations: Sequence[str]) -> None:
        """See ``TransactionalStore``."""
        for destination in destinations:
            found = self.by_destination.get(destination)
            if found is not None and found.is_deleted:
                del self.by_destination[destination]

    async def unfinished(self, prefix: str) -> Sequence[CommitRecord]:
        """See ``TransactionalStore``."""
        return [record for record in await self.records(prefix) if record.is_deleted or not record.is_committed]

    async def records(self, prefix: str) -> Sequence[CommitRecord]:
        """See ``TransactionalStore``."""
        return [self.by_destination[key] for key in sorted(self.by_destination) if key.startswith(prefix)]

    async def low_water_mark(self, namespace: str) -> int:
        """See ``TransactionalStore``."""
        return self.marks.get(namespace, 0)

    async def raise_low_water_mark(self, namespace: str, id: int) -> int:  # noqa: A002 - the port's name
        """See ``TransactionalStore``."""
        self.marks[namespace] = max(id, self.marks.get(namespace, 0))
        return self.marks[namespace]

    async def low_water_marks(self, prefix: str) -> dict[str, int]:
        """See ``TransactionalStore``."""
        return {name: mark for name, mark in sorted(self.marks.items()) if f"{name}/".startswith(prefix)}

    async def import_committed(self, records: Sequence[CommitRecord]) -> None:
        """See ``TransactionalStore``."""
        for record in records:
            self.by_destination.setdefault(record.destination, record)

    async def remove_all(self, *prefixes: str) -> None:
        """See ``TransactionalStore``."""
        for key in [key for key in self.by_destination if key.startswith(prefixes)]:
            del self.by_destination[key]
        for namespace in [namespace for namespace in self.marks if f"{namespace}/".startswith(prefixes)]:
            del self.marks[namespace]

    async def aclose(self) -> None:
        """See ``TransactionalStore``."""
