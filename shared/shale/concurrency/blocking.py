"""Blocking methods made from the asynchronous ones, so that every signature and docstring is written once.

A blocking class is a ``BlockingHandle``: it holds the asynchronous object and runs its coroutines on the thread of an
event loop.  Its methods are assignments in the class body::

    class DbReader(BlockingHandle[db_reader.DbReader]):
        refresh = blocking(db_reader.DbReader.refresh)
        manifests = blocking_iterator(db_reader.DbReader.manifests)
        seq_at = in_loop(db_reader.DbReader.seq_at)

Type checkers, ``inspect.signature`` and ``help`` see the parameters and the docstring of the original.
"""

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Mapping
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, get_args, get_origin

from shale.core.async_use import BlockingContext
from shale.core.state_repr import ShowsState, state_of

P = ParamSpec("P")
C = TypeVar("C", bound=Callable[..., Any])
S = TypeVar("S")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")


class Run(Protocol):
    """Runs a coroutine on the thread of an event loop and returns its result."""

    def __call__(self, work: Coroutine[Any, Any, T], /) -> T:
        """Block until ``work`` has ended."""
        ...


class Openable(Protocol[T_co]):
    """What an asynchronous ``open`` returns: it opens when it is awaited."""

    def opened(self) -> Coroutine[Any, Any, T_co]:
        """Open and return the handle."""
        ...


class BlockingHandle(ShowsState, BlockingContext, Generic[T]):
    """The asynchronous object ``_inner`` and the way to run its coroutines."""

    __slots__ = ("_inner", "_run")

    def __init__(self, inner: T, run: Run) -> None:
        self._inner = inner
        self._run = run

    def _shown_state(self) -> Mapping[str, object]:
        return state_of(self._inner) if isinstance(self._inner, ShowsState) else {}

    def _shown_class(self) -> str:
        return f"shale.sync.{type(self).__name__}"


def blocking(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """Make a method that runs an asynchronous one and returns its result."""
    name = method.__name__

    def call(self: Any, /, *args: P.args, **keywords: P.kwargs) -> T:
        result: T = self._run(getattr(self._inner, name)(*args, **keywords))
        return result

    return _described(call, method)


def blocking_function(run: Run, function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Make a function that runs an asynchronous one, which needs no handle, and returns its result."""

    def call(*args: P.args, **keywords: P.kwargs) -> T:
        return run(function(*args, **keywords))

    return _described(call, function)


def blocking_as(
    wrap: Callable[[T, Run], U], method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]
) -> Callable[Concatenate[Any, P], U]:
    """Make a method that runs an asynchronous one and wraps the handle that it returns.

    Args:
        wrap: the blocking class of the handle, or a function that makes it.
        method: returns the asynchronous handle.
    """
    name = method.__name__
    returns = wrap if isinstance(wrap, type) else inspect.signature(wrap).return_annotation

    def call(self: Any, /, *args: P.args, **keywords: P.kwargs) -> U:
        return wrap(self._run(getattr(self._inner, name)(*args, **keywords)), self._run)

    return _described(call, method, returns=returns)


def in_loop(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Make a method that calls one that does not wait in the thread of the event loop, which owns what it reads."""
    name = method.__name__

    def call(self: Any, /, *args: P.args, **keywords: P.kwargs) -> T:
        async def work() -> T:
            result: T = getattr(self._inner, name)(*args, **keywords)
            return result

        outcome: T = self._run(work())
        return outcome

    return _described(call, method)


def forwarded(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Make a method that calls one that does not wait in the caller's thread."""
    name = method.__name__

    def call(self: Any, /, *args: P.args, **keywords: P.kwargs) -> T:
        result: T = getattr(self._inner, name)(*args, **keywords)
        return result

    return _described(call, method)


def forwarded_write(method: Callable[Concatenate[Any, P], Any]) -> Callable[Concatenate[Any, P], None]:
    """Make a method that calls one that only records a write in the caller's thread, and returns nothing."""
    name = method.__name__

    def call(self: Any, /, *args: P.args, **keywords: P.kwargs) -> None:
        getattr(self._inner, name)(*args, **keywords)

    return _described(call, method, returns=None)


def blocking_iterator(
    method: Callable[Concatenate[Any, P], AsyncIterator[T]], *, fetch: int = 1
) -> Callable[Concatenate[Any, P], Iterator[T]]:
    """Make a generator from an asynchronous one.

    Args:
        method: an asynchronous generator function.
        fetch: items per trip to the thread of the event loop; a trip costs as much as many small items.
    """
    name = method.__name__

    def call(self: Any, /, *args: P.args, **keywords: P.kwargs) -> Iterator[T]:
        items = getattr(self._inner, name)(*args, **keywords)
        try:
            while chunk := self._run(_take(items, fetch)):
                yield from chunk
        finally:
            self._run(items.aclose())

    return _described(call, method)


class BlockingOpen(Generic[P]):
    """The class method ``open`` of a blocking class, with the parameters of the asynchronous ``open``.

    The blocking class has a class method ``_open`` that takes what the asynchronous one returns.
    """

    def __init__(self, opening: Callable[P, Openable[Any]]) -> None:
        self._opening = opening
        self.__doc__ = opening.__doc__

    def __get__(self, instance: object, owner: type[S]) -> Callable[P, S]:
        def open_(*args: P.args, **keywords: P.kwargs) -> S:
            opened: S = owner._open(self._opening(*args, **keywords))  # type: ignore[attr-defined]
            return opened

        return _described(open_, self._opening, returns=owner)


def parameters_of(
    method: Callable[Concatenate[Any, P], Any],
) -> Callable[[Callable[..., U]], Callable[Concatenate[Any, P], U]]:
    """Give a method the parameters of another one, for a method whose body is written by hand."""

    def decorate(call: Callable[..., U]) -> Callable[Concatenate[Any, P], U]:
        returns = inspect.signature(call).return_annotation
        call.__signature__ = inspect.signature(method).replace(return_annotation=returns)  # type: ignore[attr-defined]
        return call

    return decorate


async def _take(items: AsyncIterator[T], count: int) -> list[T]:
    """Take up to ``count`` items; none at the end."""
    taken: list[T] = []
    async for item in items:
        taken.append(item)
        if len(taken) == count:
            break
    return taken


def _described(call: C, method: Callable[..., Any], *, returns: Any = ...) -> C:
    """Give ``call`` the name, docstring and parameters of ``method``, and the type that it returns when it blocks.

    Without ``returns`` it is that of the coroutine.
    """
    described: Any = call
    described.__name__, described.__qualname__ = method.__name__, method.__qualname__
    described.__doc__ = method.__doc__
    signature = inspect.signature(method)
    described.__signature__ = signature.replace(
        return_annotation=_result_type(signature.return_annotation) if returns is ... else returns
    )
    return call


def _result_type(annotation: Any) -> Any:
    origin = get_origin(annotation)
    if origin is Coroutine:
        return get_args(annotation)[2]
    if origin in (AsyncIterator, AsyncGenerator):
        return Iterator[get_args(annotation)[0]]  # type: ignore[misc]
    return annotation
