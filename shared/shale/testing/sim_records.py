"""The connection of one simulated process to the shared transactional store of the two-phase mode.

For hooks, faults and invariants, the insert of a commit record is the put of its destination: it is what commits.  The
copy to the destination changes nothing that a reader could see, so invariants do not hear of it.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from shale.errors import AlreadyExists
from shale.store.port import CREATE
from shale.store.transactional.port import CommitRecord, Slot
from shale.testing.sim_network import SimNetwork, SimRequest
from shale.testing.sim_ports import SimHost

T = TypeVar("T")


class _RefusedError(AlreadyExists):
    """An insert that changed nothing: for hooks and the log, the conflict of a conditional put."""

    def __init__(self, found: CommitRecord | None) -> None:
        super().__init__("refused")
        self.found = found


class SimRecords:
    """A ``TransactionalStore`` for one process, over the simulation's records."""

    def __init__(self, process: SimHost, network: SimNetwork) -> None:
        self._process = process
        self._network = network
        self._shared = process.sim.records
        self._memory = process.sim.memory

    @property
    def url(self) -> str:
        """See ``TransactionalStore``."""
        return self._shared.url

    async def create_schema(self) -> None:
        """See ``TransactionalStore``."""

    async def schema_version(self) -> int | None:
        """See ``TransactionalStore``."""
        return await self._shared.schema_version()

    async def insert(self, record: CommitRecord, slot: Slot | None) -> CommitRecord | None:
        """See ``TransactionalStore``."""

        async def insert() -> CommitRecord:
            is_new = record.destination not in self._shared.by_destination
            found = await self._shared.insert(record, slot)
            if found is None or found.put_id != record.put_id:
                raise _RefusedError(found)
            if is_new:
                self._announce(record)
            return found

        try:
            return await self._send("put", record.destination, insert)
        except _RefusedError as refused:
            return refused.found

    async def get(self, destination: str) -> CommitRecord | None:
        """See ``TransactionalStore``."""
        return await self._send("get_record", destination, lambda: self._shared.get(destination))

    async def set_committed(self, record: CommitRecord) -> None:
        """See ``TransactionalStore``."""
        await self._send("set_committed", record.destination, lambda: self._shared.set_committed(record))

    async def set_deleted(self, destinations: Sequence[str]) -> None:
        """See ``TransactionalStore``."""
        await self._send("set_deleted", _first(destinations), lambda: self._shared.set_deleted(destinations))

    async def remove_deleted(self, destinations: Sequence[str]) -> None:
        """See ``TransactionalStore``."""
        await self._send("remove_deleted", _first(destinations), lambda: self._shared.remove_deleted(destinations))

    async def unfinished(self, prefix: str) -> Sequence[CommitRecord]:
        """See ``TransactionalStore``."""
        return await self._send("unfinished", prefix, lambda: self._shared.unfinished(prefix))

    async def records(self, prefix: str) -> Sequence[CommitRecord]:
        """See ``TransactionalStore``."""
        return await self._send("records", prefix, lambda: self._shared.records(prefix))

    async def low_water_mark(self, namespace: str) -> int:
        """See ``TransactionalStore``."""
        return await self._send("get", _boundary(namespace), lambda: self._shared.low_water_mark(namespace))

    async def raise_low_water_mark(self, namespace: str, id: int) -> int:  # noqa: A002 - the port's name
        """See ``TransactionalStore``."""

        async def raise_mark() -> int:
            before = await self._shared.low_water_mark(namespace)
            mark = await self._shared.raise_low_water_mark(namespace, id)
            if mark != before and not namespace.endswith("wal"):
                self._network.note_commit(_boundary(namespace), CREATE, b"%d" % mark)
            return mark

        return await self._send("put", _boundary(namespace), raise_mark)

    async def low_water_marks(self, prefix: str) -> dict[str, int]:
        """See ``TransactionalStore``."""
        return await self._send("low_water_marks", prefix, lambda: self._shared.low_water_marks(prefix))

    async def import_committed(self, records: Sequence[CommitRecord]) -> None:
        """See ``TransactionalStore``."""
        await self._send("import_committed", "", lambda: self._shared.import_committed(records))

    async def remove_all(self, *prefixes: str) -> None:
        """See ``TransactionalStore``."""
        await self._send("remove_all", " ".join(prefixes), lambda: self._shared.remove_all(*prefixes))

    async def aclose(self) -> None:
        """See ``TransactionalStore``."""

    def _announce(self, record: CommitRecord) -> None:
        staged = self._memory.objects.get(record.source)
        if staged is None:
            # Deleted with the whole database: the file cannot be read before its owner has staged it again.
            self._process.sim.unannounced.add(record.destination)
        else:
            self._network.note_commit(record.destination, CREATE, staged.data)

    async def _send(self, op: str, key: str, effect: Callable[[], Awaitable[T]]) -> T:
        async def take_effect() -> T:
            return await effect()

        return await self._network.send(SimRequest(op, key, take_effect, notes=False))


def _first(destinations: Sequence[str]) -> str:
    return destinations[0] if destinations else ""


def _boundary(namespace: str) -> str:
    """Return the key of the boundary that a mark stands for."""
    root, _, kind = namespace.rpartition("/")
    return f"{root}/gc/{kind}.boundary" if root else f"gc/{kind}.boundary"
