"""Translates obstore's exceptions.

obstore's exceptions depend on the backend, and some conditions are only in the text, which is several pages long,
contains URLs that may be signed, and ends in a dump of Rust values.  Shale's errors keep one line of it.
"""

import re

from obstore.exceptions import (
    AlreadyExistsError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from shale.errors import AccessDenied, AlreadyExists, NotFoundError, Precondition, ShaleError
from shale.store.adapter_errors import NotSupported, RequestFailed
from shale.telemetry.error_types import ErrorType

_STATUS = re.compile(r"status code: (\d{3})")
_QUERY = re.compile(r"(https?://[^\s?]+)\?\S*")
_PREAMBLE = re.compile(r"^Generic \w+ error: (Error performing list request: )?")
_REASON = re.compile(r'(?:message|error): "([^"]+)"')
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|The specified bucket does not exist")
_TIMEOUT = re.compile(r"TimedOut|kind: Timeout|operation timed out")
_CREATE_LOST = re.compile(r"BlobAlreadyExists|ContainerAlreadyExists")
"""Azure's codes with status 409 where others return 412.  Every other 409 is undecided and is retried."""

_THROTTLE_STATUS = {"429", "503"}
_AUTH_STATUS = {"401", "403"}


def translated(error: BaseException, url: str, op: str, key: str) -> ShaleError:
    """Return the ``ShaleError`` for a failed request."""
    text = str(error)
    where = f"{url}: {op} {key}"
    status = found.group(1) if (found := _STATUS.search(text)) else ""
    if isinstance(error, AlreadyExistsError):
        if status == "409" and not _CREATE_LOST.search(text):
            return RequestFailed(f"{where}: the store is busy with another write of the same key", ErrorType.THROTTLE)
        return AlreadyExists(f"{key} exists")
    if isinstance(error, PreconditionError):
        return Precondition(f"{key} is gone or of another version")
    if _NO_BUCKET.search(text) or isinstance(error, FileNotFoundError):
        return NotFoundError(f"{url}: there is no such bucket")
    denied = isinstance(error, PermissionDeniedError | UnauthenticatedError | PermissionError)
    if denied or status in _AUTH_STATUS:
        return AccessDenied(f"{url}: the store refused the credentials: {first_line(error)}")
    if isinstance(error, NotSupportedError | NotImplementedError) or status == "501":
        return NotSupported("conditional put" if op == "put" else op, url)
    return RequestFailed(f"{where}: {first_line(error)}", _type_of(text, status))


def check_bucket(error: FileNotFoundError, url: str) -> None:
    """Tell a missing object, which is a result, from a missing bucket.

    Raises:
        NotFoundError: the bucket does not exist.
    """
    if _NO_BUCKET.search(str(error)):
        raise NotFoundError(f"{url}: there is no such bucket") from error


def first_line(error: BaseException) -> str:
    """Return the reason on one line, without secrets."""
    head, _, dump = str(error).partition("Debug source:")
    line = _PREAMBLE.sub("", _QUERY.sub(r"\1", " ".join(head.split())))
    if "error sending request" in line and (reasons := _REASON.findall(dump)):
        line = f"{line}: {reasons[-1]}"
    elif _TIMEOUT.search(dump):
        line = f"{line}: timed out"
    return line if len(line) <= 400 else line[:400] + "…"


def _type_of(text: str, status: str) -> ErrorType:
    if status in _THROTTLE_STATUS:
        return ErrorType.THROTTLE
    if _TIMEOUT.search(text):
        return ErrorType.TIMEOUT
    if status.startswith("4"):
        return ErrorType.VALIDATION
    return ErrorType.INTERNAL if status else ErrorType.NETWORK
