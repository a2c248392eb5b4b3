"""What adapters raise besides the conditions of ``shale.errors``.

A ``RequestFailed`` is an ``UnavailableError`` that remembers why, for the metrics.  ``NotSupported`` never leaves this
room: the retry layer answers it by doing without (docs/protocol.md 1.5, step 4).
"""

from enum import StrEnum

from shale.errors import AccessDenied, ConflictError, CorruptionError, ShaleError, UnavailableError


class ErrorType(StrEnum):
    """The closed set of the label ``error_type`` (docs/operations.md 1.2), as far as stores go."""

    NETWORK = "network"
    THROTTLE = "throttle"
    TIMEOUT = "timeout"
    AUTH = "auth"
    PRECONDITION = "precondition"
    CORRUPTION = "corruption"
    VALIDATION = "validation"
    INTERNAL = "internal"


class RequestFailed(UnavailableError):
    """One request was not answered, or with a failure.  A put may or may not have happened."""

    def __init__(self, message: str, error_type: ErrorType = ErrorType.NETWORK) -> None:
        super().__init__(message)
        self.error_type = error_type


class NotSupported(ShaleError):
    """The store cannot do this at all.  ``what`` is ``attributes`` or ``conditional put``."""

    def __init__(self, what: str, url: str) -> None:
        super().__init__(f"{url}: the store does not support {what}")
        self.what = what


def error_type_of(error: ShaleError) -> ErrorType:
    """The label under which a failed request is counted."""
    match error:
        case RequestFailed():
            return error.error_type
        case AccessDenied():
            return ErrorType.AUTH
        case ConflictError():
            return ErrorType.PRECONDITION
        case CorruptionError():
            return ErrorType.CORRUPTION
        case UnavailableError():
            return ErrorType.NETWORK
        case _:
            return ErrorType.VALIDATION
