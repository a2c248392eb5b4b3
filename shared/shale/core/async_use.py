"""Errors for asynchronous objects that are used as blocking ones, and the reverse: they say what to write instead."""

import os
from collections.abc import Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

from shale.errors import WrongType


class RecordedWrite:
    """What a write of a transaction returns: the write is recorded already, and awaiting it does nothing."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, None]:
        yield from ()

    def __repr__(self) -> str:
        return "<recorded in the transaction; commit it to write it>"


class BatchedWrite:
    """What a write of a batch returns; awaiting it is a mistake, because only the whole batch is written."""

    __slots__ = ()

    def __await__(self) -> NoReturn:
        raise WrongType(
            "a write of a batch was awaited: put, delete and merge of a WriteBatch only add to it, and need no await; "
            "`await db.write(batch)`, or the end of `async with db.batch() as batch:`, writes it"
        )

    def __repr__(self) -> str:
        return "<added to the batch; write the batch to write it>"


RECORDED: Final = RecordedWrite()
BATCHED: Final[Any] = BatchedWrite()
"""Annotated as ``None``, so that type checkers refuse to await it."""


class AsyncContext:
    """An asynchronous context manager.  ``with`` raises an error that names ``async with``."""

    __slots__ = ()

    def _shown(self) -> tuple[str, str]:
        """Return the call that made this object, and a name for its handle, for errors."""
        return f"shale.{type(self).__name__}(…)", type(self).__name__.lower()

    if not TYPE_CHECKING:  # type checkers refuse the mistake themselves

        def __enter__(self) -> NoReturn:
            call, handle = self._shown()
            blocking = f"; shale.sync has the same names for `with`: {call.replace('shale.', 'shale.sync.', 1)}"
            hint = blocking if call.startswith("shale.") else ""
            raise WrongType(f"{call} was entered with `with`: write `async with {call} as {handle}:`{hint}")

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None:
            """Exist only because Python looks for this method before it calls ``__enter__``."""


class AsyncRows:
    """An asynchronous iterator.  ``for`` and ``await`` raise errors that name ``async for``."""

    __slots__ = ()

    if not TYPE_CHECKING:  # type checkers refuse the mistake themselves

        def __iter__(self) -> NoReturn:
            raise WrongType(
                "the rows of a scan were iterated with `for`: write `async for row in db.scan():`, or use shale.sync"
            )

        def __await__(self) -> NoReturn:
            raise WrongType(
                "a scan was awaited: iterate it with `async for row in db.scan():`, or await one of its methods, such "
                "as `await db.scan().next_batch(1000)` or `await db.scan().to_arrow()`"
            )


class BlockingIterator:
    """An iterator whose steps block.  ``async for`` raises an error that says so."""

    __slots__ = ()

    if not TYPE_CHECKING:  # type checkers refuse the mistake themselves

        def __aiter__(self) -> NoReturn:
            raise WrongType("a scan of shale.sync was iterated with `async for`: write `for`, or use shale.Db")


class BlockingContext:
    """An object whose calls block.  ``await`` and ``async with`` raise errors that say so."""

    __slots__ = ()

    if not TYPE_CHECKING:  # type checkers refuse the mistake themselves

        def __await__(self) -> NoReturn:
            name = type(self).__name__
            raise WrongType(f"a {name} of shale.sync was awaited: its calls block; leave `await` out, or use shale.Db")

        async def __aenter__(self) -> NoReturn:
            name = type(self).__name__
            raise WrongType(f"a {name} of shale.sync was entered with `async with`: write `with`, or use shale.{name}")

        async def __aexit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None:
            """Exist only because Python looks for this method before it calls ``__aenter__``."""


class MadeByOpen:
    """A handle that ``open`` makes.  A call of the class with a URL raises an error that says so."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __new__(cls, *arguments: object, **_: object) -> Self:
            if arguments and isinstance(arguments[0], str | os.PathLike):
                is_sync = ".sync." in cls.__module__
                call = f"shale.{'sync.' if is_sync else ''}{cls.__name__}"
                raise WrongType(f"{call}(…) opens nothing: write `{'' if is_sync else 'async '}with {call}.open(…)`")
            return super().__new__(cls)
