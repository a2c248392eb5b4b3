"""What ``Db.open(...)`` and ``DbReader.open(...)`` return: an awaitable context manager."""

import warnings
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, TypeVar

from shale.core.async_use import AsyncContext
from shale.errors import NotOpen


class Closable(Protocol):
    """A handle that must be closed."""

    async def close(self) -> None:
        """Release all resources."""
        ...


H = TypeVar("H", bound=Closable)


class PendingContext(AsyncContext):
    """What must be awaited or entered with ``async with`` before it can be used; other uses say so.

    One that is dropped without either is reported with a ``RuntimeWarning``, as a coroutine is.
    """

    _is_used = False

    if not TYPE_CHECKING:  # type checkers refuse the mistake themselves

        def __getattr__(self, name: str) -> Any:
            call, handle = self._shown()
            if name.startswith("_"):  # Python and notebooks look for optional methods
                raise AttributeError(f"{call} has no attribute {name}", name=name, obj=self)
            self._is_used = True  # the error says it all
            raise NotOpen(f"{call} is not open yet, so it has no {name!r}: {self._how_to_use(call, handle)}")

        def __enter__(self) -> NoReturn:
            self._is_used = True
            super().__enter__()

    def __repr__(self) -> str:
        call, handle = self._shown()
        return f"<{call}, not open yet: {self._how_to_use(call, handle)}>"

    def __del__(self) -> None:
        if not self._is_used:
            call, handle = self._shown()
            warnings.warn(
                f"{call} was never awaited, so nothing happened: {self._how_to_use(call, handle)}",
                RuntimeWarning,
                stacklevel=2,
                source=self,
            )

    def _how_to_use(self, call: str, handle: str) -> str:
        return f"write `async with {call} as {handle}:` or `{handle} = await {call}`"


class OpenContext(PendingContext, Generic[H]):
    """Opens a handle when it is awaited or entered.  It pickles if the arguments of ``opener`` pickle."""

    def __init__(self, opener: Callable[..., Awaitable[H]], *args: Any, **keywords: Any) -> None:
        self._opener = opener
        self._args = args
        self._keywords = keywords
        self._handle: H | None = None

    def __await__(self) -> Generator[Any, None, H]:
        self._is_used = True
        return self._opener(*self._args, **self._keywords).__await__()

    def opened(self) -> Coroutine[Any, Any, H]:
        """Open and return the handle, as awaiting this object does; for callers that need a coroutine."""
        self._is_used = True
        return self._opened()

    async def _opened(self) -> H:
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
        self._is_used = True
        return _opening, (self._opener, self._args, self._keywords)

    def _shown(self) -> tuple[str, str]:
        owner = getattr(self._opener, "__self__", None)
        name = getattr(self._opener, "__name__", "").lstrip("_")
        if owner is None:  # the copy of a pickled reader
            return "shale.DbReader.open(…)", "reader"
        class_ = owner if isinstance(owner, type) else type(owner)
        handle = "reader" if class_.__name__ == "DbReader" else "db"
        return (f"shale.{class_.__name__}.{name}(…)", handle) if class_ is owner else (f"{handle}.{name}()", name)


def _opening(opener: Callable[..., Awaitable[H]], args: tuple[Any, ...], keywords: dict[str, Any]) -> "OpenContext[H]":
    return OpenContext(opener, *args, **keywords)
