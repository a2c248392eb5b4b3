"""Maps problem documents to the errors of the library."""

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

_PROXY_STATUSES = frozenset({429, 502, 503, 504})
_BY_KIND: dict[str, type[ShaleError]] = {
    ErrorKind.TRANSACTION: TransactionConflict,
    ErrorKind.CLOSED_CLEAN: ClosedError,
    ErrorKind.CLOSED_FENCED: FencedError,
    ErrorKind.UNAVAILABLE: UnavailableError,
    ErrorKind.INVALID: InvalidRequestError,
    ErrorKind.DATA: CorruptionError,
}


class SnapshotExpired(NotFoundError):
    """The lease of a snapshot has expired, or a scan cannot resume in its state."""


class CompareFailed(ConflictError):
    """A comparison does not hold; nothing was written.  ``failed``: the indexes of all failed comparisons."""

    kind = ErrorKind.TRANSACTION

    def __init__(self, message: str, failed: tuple[int, ...]) -> None:
        super().__init__(message)
        self.failed = failed


_BY_STATUS: dict[int, type[ShaleError]] = {
    HTTPStatus.UNAUTHORIZED: AccessDenied,
    HTTPStatus.FORBIDDEN: AccessDenied,
    HTTPStatus.GONE: SnapshotExpired,
}


def error_of(status: int, body: bytes) -> ShaleError:
    """Return the error of a response with this status and body."""
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        fields = None
    if not isinstance(fields, dict):
        words = body[:200].decode("utf-8", "replace")
        return (UnavailableError if status >= HTTPStatus.INTERNAL_SERVER_ERROR else ShaleError)(f"{status}: {words}")
    return problem_error(status, fields)


def problem_error(status: int, fields: dict[str, object]) -> ShaleError:
    """Return the error of a problem document."""
    detail, kind = str(fields.get("detail", status)), str(fields.get("kind", ""))
    if status == HTTPStatus.PRECONDITION_FAILED:
        failed = fields.get("failed")
        return CompareFailed(detail, tuple(failed) if isinstance(failed, list) else ())
    if status == HTTPStatus.CONFLICT and kind != ErrorKind.TRANSACTION:
        return ConflictError(detail)
    if status == HTTPStatus.NOT_FOUND and kind == ErrorKind.DATA:
        return NotFoundError(detail)
    class_ = _BY_STATUS.get(status) or _BY_KIND.get(kind)
    if class_ is None:  # another server, such as a proxy, sent the response
        class_ = UnavailableError if status in _PROXY_STATUSES else ShaleError
    return class_(detail)


def unreachable(url: str, error: httpx.RequestError) -> UnavailableError:
    """Return the error of a request without a response, or with one that cannot be decompressed."""
    return UnavailableError(f"{url}: {type(error).__name__}: {error}")
