"""The object store of one simulated process, over its connection (``sim_network``)."""

from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

from shale.core.bytes_like import BytesLike
from shale.errors import ShaleError
from shale.store.memory import joined
from shale.store.port import CREATE, OVERWRITE, ETag, GetResult, NotModified, ObjectMeta, PutMode
from shale.store.two_phase.names import namespace_of_boundary, parse_staged_key
from shale.store.wrapper import delete_each
from shale.testing.sim_network import SimNetwork, SimRequest
from shale.testing.sim_ports import SimHost

T = TypeVar("T")


class SimStore:
    """An ``ObjectStore`` for one process, over the simulation's memory."""

    def __init__(self, process: SimHost, network: SimNetwork) -> None:
        self._process = process
        self._memory = process.sim.memory
        self._network = network

    @property
    def url(self) -> str:
        """See ``ObjectStore``."""
        return self._memory.url

    @property
    def supports_attributes(self) -> bool:
        """See ``ObjectStore``."""
        return self._memory.supports_attributes

    async def get(self, key: str) -> GetResult | None:
        """See ``ObjectStore``."""
        return await self._network.send(SimRequest("get", key, lambda: self._memory.get(key)))

    async def get_if_changed(self, key: str, etag: ETag) -> GetResult | NotModified | None:
        """See ``ObjectStore``."""
        return await self._network.send(SimRequest("get", key, lambda: self._memory.get_if_changed(key, etag)))

    async def get_range(self, key: str, start: int, end: int) -> memoryview | None:
        """See ``ObjectStore``."""
        return await self._network.send(SimRequest("get_range", key, lambda: self._memory.get_range(key, start, end)))

    async def head(self, key: str) -> ObjectMeta | None:
        """See ``ObjectStore``."""
        return await self._network.send(SimRequest("head", key, lambda: self._memory.head(key)))

    async def put(
        self,
        key: str,
        data: BytesLike | Sequence[BytesLike],
        *,
        mode: PutMode = OVERWRITE,
        attributes: Mapping[str, str] | None = None,
    ) -> ETag | None:
        """See ``ObjectStore``."""
        body = joined(data)
        request = SimRequest(
            "put", key, lambda: self._memory.put(key, body, mode=mode, attributes=attributes), mode, body
        )
        if self._process.sim.two_phase and (
            parse_staged_key(key) is not None or namespace_of_boundary(key) is not None
        ):
            request.op = "stage"
        return await self._network.send(request)

    async def put_stream(self, key: str, parts: AsyncIterable[BytesLike]) -> None:
        """See ``ObjectStore``; the object appears in one step at the end."""
        await self.put(key, [bytes(part) async for part in parts])

    async def delete(self, key: str) -> None:
        """See ``ObjectStore``."""
        request = SimRequest("delete", key, lambda: self._memory.delete(key))
        if parse_staged_key(key) is not None:
            request.op = "unstage"
        await self._network.send(request)

    async def list(self, prefix: str) -> list[ObjectMeta]:
        """See ``ObjectStore``."""
        return await self._network.send(SimRequest("list", prefix, lambda: self._memory.list(prefix)))

    async def list_pages(self, prefix: str, *, after: str = "") -> AsyncIterator[Sequence[ObjectMeta]]:
        """See ``ObjectStore``.  Every page is a request, and sees the store as it is then."""
        full = True
        while full:
            page = await self._network.send(SimRequest("list", prefix, partial(self._page, prefix, after)))
            full = len(page) == self._network.options.list_page
            if page:
                after = page[-1].key
                yield page

    async def _page(self, prefix: str, after: str) -> Sequence[ObjectMeta]:
        found = [meta for meta in await self._memory.list(prefix) if meta.key > after]
        return found[: self._network.options.list_page]

    async def delete_many(self, keys: Sequence[str]) -> Mapping[str, ShaleError]:
        """See ``ObjectStore``.  One by one, so that some deletions may fail."""
        return await delete_each(self.delete, keys)

    async def copy(self, source: str, destination: str) -> None:
        """See ``ObjectStore``."""

        async def copied() -> None:
            await self._memory.copy(source, destination)
            unannounced = self._process.sim.unannounced
            if destination in unannounced:
                unannounced.remove(destination)
                self._network.note_commit(destination, CREATE, self._memory.objects[destination].data)

        await self._network.send(SimRequest("copy", destination, copied, notes=parse_staged_key(source) is None))

    async def aclose(self) -> None:
        """See ``ObjectStore``."""
