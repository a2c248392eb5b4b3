"""What ``Db.open(...)`` and ``DbReader.open(...)`` return: an awaitable context manager."""

from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar


class Closable(Protocol):
    """A handle that must be closed."""

    async def close(self) -> None:
        """Release all resources."""
        ...


H = TypeVar("H", bound=Closable)


class OpenContext(Generic[H]):
    """Opens a handle when it is awaited or entered.  It pickles if the arguments of ``opener`` pickle."""

    def __init__(self, opener: Callable[..., Awaitable[H]], *args: Any, **keywords: Any) -> None:
        self._opener = opener
        self._args = args
        self._keywords = keywords
        self._handle: H | None = None

    def __await__(self) -> Generator[Any, None, H]:
        return self._opener(*self._args, **self._keywords).__await__()

    async def opened(self) -> H:
        """Open and return the handle, as awaiting this object does; for callers that need a coroutine."""
        return await self

    async def __aenter__(self) -> H:
        self._handle = await self
        return self._handle

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            await handle.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _opening, (self._opener, self._args, self._keywords)


def _opening(opener: Callable[..., Awaitable[H]], args: tuple[Any, ...], keywords: dict[str, Any]) -> "OpenContext[H]":
    return OpenContext(opener, *args, **keywords)
