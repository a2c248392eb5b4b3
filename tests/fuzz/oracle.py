"""What an answer must be: equal to that of another reader, or an error that names the object."""

import contextlib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, TypeVar

from shale.errors import CorruptionError, ShaleError
from tests.fuzz.target import Difference

PATH = "db/the-object"
T = TypeVar("T")


def attempt(read: Callable[[], T]) -> T | CorruptionError:
    """Return what a reader returns, or the corruption that it reports."""
    try:
        return read()
    except CorruptionError as error:
        return error


def require_place(read: Callable[[], T], *, offset_max: int | None = None) -> T:
    """Return what a reader returns; a corruption must name the object, and a byte of it."""
    try:
        return read()
    except CorruptionError as error:
        if error.path != PATH:
            raise Difference(f"a corruption names another object: {error.path!r}, {error}") from error
        if offset_max is not None and (error.offset is None or not 0 <= error.offset <= offset_max):
            raise Difference(f"a corruption names no byte of the object: {error.offset}, {error}") from error
        raise


def require_equal(what: str, one: Any, other: Any) -> None:
    """Compare two answers; two errors are equal, whatever they say."""
    if isinstance(one, ShaleError) and isinstance(other, ShaleError):
        return
    if one != other:
        raise Difference(f"{what}: {_short(one)} and {_short(other)}")


def _short(value: object) -> str:
    return repr(value)[:300]


@contextlib.contextmanager
def without_kernels(*modules: ModuleType) -> Iterator[None]:
    """Let modules use their plain code."""
    before = [module.use_kernels for module in modules]
    for module in modules:
        module.use_kernels = lambda: False  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for module, use in zip(modules, before, strict=True):
            module.use_kernels = use  # type: ignore[attr-defined]
