"""Problem documents as the library's own errors."""

from http import HTTPStatus

import httpx
import orjson

from shale.errors import (
    AccessDenied,
    ClosedError,
    ConflictError,
    CorruptionError,
    ErrorKind,
    FencedError,
    InvalidRequestError,
    NotFoundError,
    ShaleError,
    TransactionConflict,
    UnavailableError,
)

_OF_PROXIES = frozenset({429, 502, 503, 504})
_BY_KIND: dict[str, type[ShaleError]] = {
    ErrorKind.TRANSACTION: TransactionConflict,
    ErrorKind.CLOSED_CLEAN: ClosedError,
    ErrorKind.CLOSED_FENCED: FencedError,
    ErrorKind.UNAVAILABLE: UnavailableError,
    ErrorKind.INVALID: InvalidRequestError,
    ErrorKind.DATA: CorruptionError,
}


class StateGone(NotFoundError):
    """The lease of a snapshot is over, or a scan cannot go on in the state in which it began."""


class CompareFailed(ConflictError):
    """A compare of a transaction does not hold; nothing was written.  ``failed``: the places of all that do not."""

    kind = ErrorKind.TRANSACTION

    def __init__(self, message: str, failed: tuple[int, ...]) -> None:
        super().__init__(message)
        self.failed = failed


_BY_STATUS: dict[int, type[ShaleError]] = {HTTPStatus.UNAUTHORIZED: AccessDenied, HTTPStatus.GONE: StateGone}


def error_of(status: int, body: bytes) -> ShaleError:
    """What an answer with a problem document means."""
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        fields = None
    if not isinstance(fields, dict):
        words = body[:200].decode("utf-8", "replace")
        return (UnavailableError if status >= HTTPStatus.INTERNAL_SERVER_ERROR else ShaleError)(f"{status}: {words}")
    return problem_error(status, fields)


def problem_error(status: int, fields: dict[str, object]) -> ShaleError:
    """What a problem document means."""
    detail, kind = str(fields.get("detail", status)), str(fields.get("kind", ""))
    if status == HTTPStatus.PRECONDITION_FAILED:
        failed = fields.get("failed")
        return CompareFailed(detail, tuple(failed) if isinstance(failed, list) else ())
    if status == HTTPStatus.CONFLICT and kind != ErrorKind.TRANSACTION:
        return ConflictError(detail)
    if status == HTTPStatus.NOT_FOUND and kind == ErrorKind.DATA:
        return NotFoundError(detail)
    class_ = _BY_STATUS.get(status) or _BY_KIND.get(kind)
    if class_ is None:  # not one of ours has answered
        class_ = UnavailableError if status in _OF_PROXIES else ShaleError
    return class_(detail)


def unreachable(url: str, error: httpx.TransportError) -> UnavailableError:
    """No answer came."""
    return UnavailableError(f"{url}: {type(error).__name__}: {error}")
