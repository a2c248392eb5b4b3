"""What the shared stores of a simulation hold, as a reader would find it.

With the two-phase mode the insert of a commit record is what creates an object, and its destination is written later.
So an object that is committed and not copied yet is here under its key, and staged objects are not.
"""

from collections.abc import Iterator, Mapping

from shale.core.lazy_dataclass import dataclass
from shale.store.memory import MemoryStore, StoredObject
from shale.store.transactional.memory import MemoryTransactionalStore
from shale.store.transactional.port import CommitRecord
from shale.store.two_phase.names import is_emulated, namespace_of_boundary, parse_staged_key


@dataclass(frozen=True, slots=True)
class SimSnapshot:
    """A copy of both stores, for another simulation."""

    objects: Mapping[str, StoredObject]
    records: Mapping[str, CommitRecord]
    marks: Mapping[str, int]


class SimObjects(Mapping[str, bytes]):
    """The objects of both stores by key; also changes them as a process outside the simulation would."""

    def __init__(self, memory: MemoryStore, records: MemoryTransactionalStore, *, two_phase: bool) -> None:
        self._memory = memory
        self._records = records
        self._two_phase = two_phase

    def __getitem__(self, key: str) -> bytes:
        if (stored := self._memory.objects.get(key)) is not None:
            return stored.data
        record = self._records.by_destination.get(key)
        if record is None or not self._is_to_be_copied(record):
            raise KeyError(key)
        return self._memory.objects[record.source].data

    def __contains__(self, key: object) -> bool:
        if key in self._memory.objects:
            return True
        record = self._records.by_destination.get(str(key))
        return record is not None and self._is_to_be_copied(record)

    def __iter__(self) -> Iterator[str]:
        keys = {key for key in self._memory.objects if parse_staged_key(key) is None}
        keys.update(record.destination for record in self._records.uncommitted if self._is_to_be_copied(record))
        return iter(sorted(keys))

    def _is_to_be_copied(self, record: CommitRecord) -> bool:
        return not record.is_committed and not record.is_deleted and record.source in self._memory.objects

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def write(self, key: str, data: bytes) -> None:
        """Write an object, or a boundary, at once."""
        namespace = namespace_of_boundary(key)
        if self._two_phase and namespace is not None:
            self._records.marks[namespace] = int(data)
            return
        self._memory.write(key, data)
        if self._two_phase and is_emulated(key):
            record = CommitRecord(
                destination=key,
                source=f"{key}.outside",
                put_id="outside",
                checksum="",
                size=len(data),
                created_at_ms=0,
                is_committed=True,
            )
            self._records.by_destination[key] = record

    def remove_boundary(self, key: str) -> None:
        """Remove a boundary at once."""
        namespace = namespace_of_boundary(key)
        assert namespace is not None, key
        self._memory.objects.pop(key, None)
        self._records.marks.pop(namespace, None)

    def snapshot(self) -> SimSnapshot:
        """Return a copy of both stores."""
        return SimSnapshot(dict(self._memory.objects), dict(self._records.by_destination), dict(self._records.marks))

    def restore(self, snapshot: SimSnapshot) -> None:
        """Add what a copy holds."""
        self._memory.objects.update(snapshot.objects)
        self._records.by_destination.update(snapshot.records)
        self._records.marks.update(snapshot.marks)
