"""An object store without conditional writes, and processes that die between two requests."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from shale.core.bytes_like import BytesLike
from shale.env import Clock, Env
from shale.store.memory import MemoryStore
from shale.store.port import OVERWRITE, ETag, Overwrite, PutMode
from shale.store.transactional.memory import MemoryTransactionalStore
from shale.store.two_phase.store import TwoPhaseStore
from shale.types import AckAfter


class PlainStore(MemoryStore):
    """A store that must never get a condition, and keeps no metadata."""

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(clock, supports_attributes=False)

    async def put(
        self,
        key: str,
        data: BytesLike | Sequence[BytesLike],
        *,
        mode: PutMode = OVERWRITE,
        attributes: Mapping[str, str] | None = None,
    ) -> ETag | None:
        assert isinstance(mode, Overwrite), f"a condition on {key}"
        assert not attributes, f"metadata on {key}"
        return await super().put(key, data)


OBJECT_CHANGES = ("put", "copy", "delete", "delete_many")
RECORD_CHANGES = ("insert", "set_committed", "set_deleted", "remove_deleted", "raise_low_water_mark")
"""The requests that change something."""


class Killed(BaseException):
    """The process is dead."""


class Requests:
    """Counts the requests of a process that change something, and kills it after one of them."""

    def __init__(self, kill_after: int | None = None) -> None:
        self.done: list[str] = []
        self._kill_after = kill_after

    def counted(self, target: object, changes: Sequence[str]) -> Any:
        """Return a proxy of a store whose calls count."""
        return _Proxy(self, target, frozenset(changes))

    async def call(self, name: str, send: Callable[[], Awaitable[Any]]) -> Any:
        """Send one request."""
        result = await send()
        self.done.append(name)
        if len(self.done) == self._kill_after:
            raise Killed
        return result


class _Proxy:
    def __init__(self, requests: Requests, target: object, changes: frozenset[str]) -> None:
        self._requests = requests
        self._target = target
        self._changes = changes

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if name not in self._changes:
            return found
        return lambda *args, **kwargs: self._requests.call(name, lambda: found(*args, **kwargs))


class Place:
    """The stores that processes share."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.objects = PlainStore(clock)
        self.records = MemoryTransactionalStore()

    def process(self, requests: Requests | None = None, ack_after: AckAfter = AckAfter.COPY) -> TwoPhaseStore:
        """Return the store of one more process."""
        counter = requests if requests is not None else Requests()
        objects = counter.counted(self.objects, OBJECT_CHANGES)
        records = counter.counted(self.records, RECORD_CHANGES)
        return TwoPhaseStore(objects, records, Env.system(), ack_after)

    @property
    def keys(self) -> list[str]:
        """The keys of all objects."""
        return sorted(self.objects.objects)
