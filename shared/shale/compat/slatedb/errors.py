"""The errors of the binding, and the conversion of Shale's errors to them.

``Error.Invalid`` and its siblings are subclasses of ``Error``.  Messages are SlateDB's where programs are known to read
them, and otherwise Shale's after SlateDB's name of the kind.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from shale import errors
from shale.compat.slatedb.types.enums import CloseReason
from shale.errors import ErrorKind, ShaleError

P = ParamSpec("P")
R = TypeVar("R")


class InternalError(Exception):
    """An error of the binding itself; never raised here."""


class Error(Exception):
    """The base of all errors that calls raise."""

    Transaction: type["TransactionFailed"]
    Closed: type["Closed"]
    Unavailable: type["Unavailable"]
    Invalid: type["Invalid"]
    Data: type["Data"]
    Internal: type["Internal"]

    message: str

    def __repr__(self) -> str:
        return f"Error.{type(self).__name__}({self})"


class _Message(Error):
    def __init__(self, message: str) -> None:
        super().__init__(f"message={message!r}")
        self.message = message


class TransactionFailed(_Message):
    """``Error.Transaction``: another commit wrote what the transaction relies on."""


class Closed(Error):
    """``Error.Closed``: the handle is closed; ``reason`` says why."""

    def __init__(self, reason: CloseReason, message: str) -> None:
        super().__init__(f"reason={reason!r}, message={message!r}")
        self.reason = reason
        self.message = message


class Unavailable(_Message):
    """``Error.Unavailable``: the store did not answer."""


class Invalid(_Message):
    """``Error.Invalid``: an invalid call or setting."""


class Data(_Message):
    """``Error.Data``: stored data is damaged or missing."""


class Internal(_Message):
    """``Error.Internal``: an error in the engine."""


TransactionFailed.__name__ = "Transaction"
for _kind in (TransactionFailed, Closed, Unavailable, Invalid, Data, Internal):
    setattr(Error, _kind.__name__, _kind)
    _kind.__qualname__ = f"Error.{_kind.__name__}"


class MergeOperatorCallbackError(Exception):
    """The base of the errors that a merge operator may raise."""

    Failed: type["Failed"]


class Failed(MergeOperatorCallbackError):
    """``MergeOperatorCallbackError.Failed``: the operands cannot be merged."""

    def __init__(self, message: str) -> None:
        super().__init__(f"message={message!r}")
        self.message = message

    def __repr__(self) -> str:
        return f"MergeOperatorCallbackError.Failed({self})"


MergeOperatorCallbackError.Failed = Failed
Failed.__qualname__ = "MergeOperatorCallbackError.Failed"

_BRANCHES: dict[ErrorKind, type[_Message]] = {
    ErrorKind.TRANSACTION: TransactionFailed,
    ErrorKind.UNAVAILABLE: Unavailable,
    ErrorKind.INVALID: Invalid,
    ErrorKind.DATA: Data,
    ErrorKind.INTERNAL: Internal,
}

_KNOWN_MESSAGES: tuple[tuple[type[ShaleError], str], ...] = (
    (errors.TransactionConflict, "transaction conflict"),
    (errors.LatestRecordMissing, "failed to find latest transactional object (e.g. manifest) version"),
    (errors.MergeOperatorMissing, "merge operator missing"),
)
"""Conditions whose message programs look for; Shale's message follows it."""


def error_of(error: ShaleError) -> Error:
    """Return SlateDB's error for the same condition."""
    match error.kind:
        case ErrorKind.CLOSED_CLEAN:
            return Closed(CloseReason.CLEAN, "Closed error: db is closed")
        case ErrorKind.CLOSED_FENCED:
            return Closed(CloseReason.FENCED, f"Closed error: detected newer DB client ({error})")
        case kind:
            pass
    if isinstance(error, errors.ProtocolPanic):
        return Closed(CloseReason.PANIC, f"Closed error: background task panicked ({error})")
    branch = _BRANCHES[kind]
    return branch(f"{branch.__name__} error: {_message(error)}")


def _message(error: ShaleError) -> str:
    if isinstance(error, errors.CheckpointMissing):
        return f"checkpoint missing. checkpoint_id=`{error.id}`"
    if isinstance(error, errors.MergeOperatorFailed) and isinstance(error.__cause__, Failed):
        return f"merge operator error ({error.__cause__.message})"
    for condition, known in _KNOWN_MESSAGES:
        if isinstance(error, condition):
            return known if known in str(error) else f"{known} ({error})"
    return str(error)


def invalid(message: str) -> Invalid:
    """Return the error for a call that the binding itself refuses; its message has no prefix with the kind."""
    return Invalid(message)


@contextmanager
def slatedb_errors() -> Iterator[None]:
    """Raise SlateDB's errors in place of Shale's."""
    try:
        yield
    except ShaleError as error:
        raise error_of(error) from error


def raises_slatedb_errors(call: Callable[P, Awaitable[R]]) -> Callable[P, Any]:
    """Make a coroutine method raise SlateDB's errors, and run in the event loop of its object."""

    async def translating(*args: P.args, **keywords: P.kwargs) -> R:
        try:
            return await call(*args, **keywords)
        except ShaleError as error:
            raise error_of(error) from error

    @wraps(call)
    async def in_own_loop(*args: P.args, **keywords: P.kwargs) -> R:
        loop = getattr(args[0], "_loop", None)
        if loop is None or loop is asyncio.get_running_loop():
            try:
                return await call(*args, **keywords)
            except ShaleError as error:
                raise error_of(error) from error
        if not loop.is_running():
            raise invalid("the event loop in which it was opened does not run any more: open and use it in one run")
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(translating(*args, **keywords), loop))

    return in_own_loop
