"""Ends a process at a chosen request to any of its stores."""

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from shale.core.bytes_like import BytesLike
from shale.errors import ShaleError
from shale.store.memory import joined
from shale.store.port import OVERWRITE, ETag, GetResult, NotModified, ObjectMeta, ObjectStore, PutMode
from shale.store.wrapper import StoreWrapper, next_page


class Killed(ShaleError):
    """The process has ended: no request follows."""


class Countdown:
    """Counts the requests of all stores of one process.  ``left``: the request that is the last; ``None``: no end."""

    def __init__(self, left: int | None = None, *, after_effect: bool = False) -> None:
        self._left = left
        self._after_effect = after_effect
        self.requests = 0

    async def send(self, effect: Callable[[], Awaitable[Any]]) -> Any:
        """Send a request, or end before it or after its effect."""
        self.requests += 1
        if self._left is not None and self.requests >= self._left:
            if self._after_effect and self.requests == self._left:
                await effect()
            raise Killed("killed")
        return await effect()


class Pause(Countdown):
    """Lets other work happen before one request."""

    def __init__(self, at: int | None = None, work: Callable[[], Awaitable[None]] | None = None) -> None:
        super().__init__()
        self._at, self.work = at, work

    async def send(self, effect: Callable[[], Awaitable[Any]]) -> Any:
        if self.requests + 1 == self._at and self.work is not None:
            self._at = None  # requests of other tasks go on meanwhile
            await self.work()
        return await super().send(effect)


class KillingStore(StoreWrapper):
    """A store of the process."""

    def __init__(self, store: ObjectStore, countdown: Countdown) -> None:
        super().__init__(store)
        self._send = countdown.send

    async def get(self, key: str) -> GetResult | None:
        return await self._send(lambda: self._store.get(key))  # type: ignore[no-any-return]

    async def get_if_changed(self, key: str, etag: ETag) -> GetResult | NotModified | None:
        return await self._send(lambda: self._store.get_if_changed(key, etag))  # type: ignore[no-any-return]

    async def get_range(self, key: str, start: int, end: int) -> memoryview | None:
        return await self._send(lambda: self._store.get_range(key, start, end))  # type: ignore[no-any-return]

    async def head(self, key: str) -> ObjectMeta | None:
        return await self._send(lambda: self._store.head(key))  # type: ignore[no-any-return]

    async def put(
        self,
        key: str,
        data: BytesLike | Sequence[BytesLike],
        *,
        mode: PutMode = OVERWRITE,
        attributes: Mapping[str, str] | None = None,
    ) -> ETag | None:
        body = joined(data)
        return await self._send(  # type: ignore[no-any-return]
            lambda: self._store.put(key, body, mode=mode, attributes=attributes)
        )

    async def put_stream(self, key: str, parts: AsyncIterable[BytesLike]) -> None:
        body = b"".join([bytes(part) async for part in parts])
        await self._send(lambda: self._store.put(key, body))

    async def delete(self, key: str) -> None:
        await self._send(lambda: self._store.delete(key))

    async def list(self, prefix: str) -> list[ObjectMeta]:
        return await self._send(lambda: self._store.list(prefix))  # type: ignore[no-any-return]

    async def list_pages(self, prefix: str, *, after: str = "") -> AsyncIterator[Sequence[ObjectMeta]]:
        pages = self._store.list_pages(prefix, after=after)
        while page := await self._send(lambda: next_page(pages)):
            yield page

    async def delete_many(self, keys: Sequence[str]) -> Mapping[str, ShaleError]:
        return await self._send(lambda: self._store.delete_many(keys))  # type: ignore[no-any-return]

    async def copy(self, source: str, destination: str) -> None:
        await self._send(lambda: self._store.copy(source, destination))
