"""Translates obstore's exceptions.

obstore's exceptions depend on the backend, and some conditions are only in the text, which is several pages long,
contains URLs that may be signed, and ends in a dump of Rust values.  Shale's errors keep one line of it, without
secrets, and do not have the original error as their cause: a traceback would show all of it.
"""

import re

from obstore.exceptions import (
    AlreadyExistsError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from shale.core.url_secrets import HIDDEN, without_url_secrets
from shale.errors import AccessDenied, AlreadyExists, NotFoundError, Precondition, ShaleError
from shale.store.adapter_errors import NotSupported, RequestFailed
from shale.telemetry.error_types import ErrorType

_STATUS = re.compile(r"status code: (\d{3})")
_QUERY = re.compile(r"(https?://[^\s?]+)\?\S*")
_PREAMBLE = re.compile(r"^Generic \w+ error: (Error performing list request: )?")
_REASON = re.compile(r'(?:message|error): "([^"]+)"')
_SCHEMES = "bearer|basic|sharedkey|aws4-hmac-sha256"
_QUOTED_SECRETS = (
    re.compile(rf"(?i)\b((?:x-amz-security-token|(?:proxy-)?authorization)\s*:\s*(?:(?:{_SCHEMES})\s+)?)[^\s,<]+"),
    re.compile(r"(?i)((?:credential|signature)\s*=\s*|<(?:awsaccesskeyid|signatureprovided)>)[^\s,<]+"),
)
"""Secrets of requests that servers quote in their answers, as S3 does if a signature does not match."""
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|The specified bucket does not exist")
_DENIED = re.compile(r"\(code: AccessDenied\)")
"""In the answer to a request that deletes several objects, whose own status is 200."""
_TIMEOUT = re.compile(r"TimedOut|kind: Timeout|operation timed out")
_CREATE_LOST = re.compile(r"BlobAlreadyExists|ContainerAlreadyExists")
"""Azure's codes with status 409 where others return 412.  Every other 409 is undecided and is retried."""

_MACHINE = re.compile(r"//(169\.254\.169\.254|169\.254\.170\.2|metadata(\.google\.internal)?)[:/]")
"""The services that give the credentials of a machine in a cloud."""
_CREDENTIALS = {
    "s3": "access_key_id and secret_access_key in store_options, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "service_account in store_options, or GOOGLE_APPLICATION_CREDENTIALS",
    "az": "account_key in store_options, or AZURE_STORAGE_ACCOUNT_KEY",
}

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
    if denied or status in _AUTH_STATUS or _DENIED.search(text):
        who = "the store refused the credentials"
        return AccessDenied(f"{url}: {_without_credentials(url, text) or who}: {first_line(error)}")
    if isinstance(error, NotSupportedError | NotImplementedError) or status == "501":
        return NotSupported("conditional put" if op == "put" else op, url)
    missing = _without_credentials(url, text)
    return RequestFailed(f"{where}: {f'{missing}: ' if missing else ''}{first_line(error)}", _type_of(text, status))


def _without_credentials(url: str, text: str) -> str:
    """Return what to do about a request for credentials of the machine; empty if it was another request.

    Such a request is only sent if no credentials were found, and fails on every machine outside of the cloud.
    """
    if not _MACHINE.search(text):
        return ""
    return f"no credentials were found, and this machine has none: set {_CREDENTIALS[url.partition('://')[0]]}"


def check_bucket(error: FileNotFoundError, url: str) -> None:
    """Tell a missing object, which is a result, from a missing bucket.

    Raises:
        NotFoundError: the bucket does not exist.
    """
    if _NO_BUCKET.search(str(error)):
        raise NotFoundError(f"{url}: there is no such bucket") from None


def first_line(error: BaseException) -> str:
    """Return the reason on one line, without secrets."""
    head, _, dump = str(error).partition("Debug source:")
    line = _PREAMBLE.sub("", _QUERY.sub(r"\1", " ".join(head.split())))
    if "error sending request" in line and (reasons := _REASON.findall(dump)):
        line = f"{line}: {reasons[-1]}"
    elif _TIMEOUT.search(dump):
        line = f"{line}: timed out"
    line = _without_secrets(line)
    return line if len(line) <= 400 else line[:400] + "…"


def _without_secrets(line: str) -> str:
    for pattern in _QUOTED_SECRETS:
        line = pattern.sub(rf"\1{HIDDEN}", line)
    return without_url_secrets(line)


def _type_of(text: str, status: str) -> ErrorType:
    if status in _THROTTLE_STATUS:
        return ErrorType.THROTTLE
    if _TIMEOUT.search(text):
        return ErrorType.TIMEOUT
    if status.startswith("4"):
        return ErrorType.VALIDATION
    return ErrorType.INTERNAL if status else ErrorType.NETWORK
