"""Errors as RFC 9457 problem documents (docs/reference/http.md)."""

from collections.abc import Mapping
from http import HTTPStatus

import orjson
from starlette.responses import Response

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
    UnavailableError,
    UnknownCheckpoint,
)

MEDIA_TYPE = "application/problem+json"

_STATUS: tuple[tuple[type[ShaleError], HTTPStatus], ...] = (
    (FencedError, HTTPStatus.MISDIRECTED_REQUEST),
    (ClosedError, HTTPStatus.SERVICE_UNAVAILABLE),
    (UnavailableError, HTTPStatus.SERVICE_UNAVAILABLE),
    (AccessDenied, HTTPStatus.SERVICE_UNAVAILABLE),
    (CorruptionError, HTTPStatus.INTERNAL_SERVER_ERROR),
    (NotFoundError, HTTPStatus.NOT_FOUND),
    (UnknownCheckpoint, HTTPStatus.NOT_FOUND),
    (ConflictError, HTTPStatus.CONFLICT),
    (InvalidRequestError, HTTPStatus.BAD_REQUEST),
)
_RETRY_AFTER_S = {HTTPStatus.TOO_MANY_REQUESTS: 1, HTTPStatus.SERVICE_UNAVAILABLE: 1}


class Problem(Exception):
    """An error that is sent as a problem document; ``fields`` are additional members of the document."""

    def __init__(
        self,
        status: HTTPStatus,
        detail: str,
        *,
        kind: str = "invalid",
        headers: Mapping[str, str] | None = None,
        fields: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.kind = kind
        self.headers = dict(headers or {})
        self.fields = dict(fields or {})


def bad_request(detail: str) -> Problem:
    """Return a 400: the client must change the request."""
    return Problem(HTTPStatus.BAD_REQUEST, detail)


def too_large(detail: str) -> Problem:
    """Return a 413.  The connection is closed, because the rest of the body is not read."""
    return Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail, headers={"Connection": "close"})


def busy(detail: str, *, status: HTTPStatus = HTTPStatus.SERVICE_UNAVAILABLE) -> Problem:
    """Return a retryable error: the same request may succeed later."""
    return Problem(status, detail, kind=ErrorKind.UNAVAILABLE.value)


def problem_from(error: ShaleError) -> Problem:
    """Return the problem for an error of the engine."""
    for class_, status in _STATUS:
        if isinstance(error, class_):
            return Problem(status, str(error), kind=error.kind.value)
    return Problem(HTTPStatus.INTERNAL_SERVER_ERROR, str(error), kind=error.kind.value)


def document(problem: Problem) -> dict[str, object]:
    """Return the problem document; ``type`` contains the kind, which clients may compare."""
    return {
        "type": f"urn:shale:problem:{problem.kind.replace(':', '-')}",
        "title": problem.status.phrase,
        "status": problem.status.value,
        "detail": problem.detail,
        "kind": problem.kind,
        "retryable": problem.status in _RETRY_AFTER_S,
        **problem.fields,
    }


def retry_after_s(status: HTTPStatus) -> int | None:
    """Return the seconds after which a retryable request may be sent again; ``None`` if it is not retryable."""
    return _RETRY_AFTER_S.get(status)


def response(problem: Problem) -> Response:
    """Return the HTTP response of a problem."""
    headers = dict(problem.headers)
    pause_s = retry_after_s(problem.status)
    if pause_s is not None:
        headers.setdefault("Retry-After", str(pause_s))
    return Response(orjson.dumps(document(problem)), problem.status.value, headers, MEDIA_TYPE)
