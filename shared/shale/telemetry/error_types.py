"""The type of an error: the closed label ``error_type`` of metrics and log lines."""

from enum import StrEnum

from shale.errors import (
    AccessDenied,
    ConflictError,
    CorruptionError,
    FencedError,
    InvalidRequestError,
    ObjectUpdateTimeout,
    ShaleError,
    UnavailableError,
)


class ErrorType(StrEnum):
    """The vocabulary of docs/how-to/monitor.md."""

    NETWORK = "network"
    THROTTLE = "throttle"
    TIMEOUT = "timeout"
    AUTH = "auth"
    PRECONDITION = "precondition"
    MEMORY = "memory"
    CORRUPTION = "corruption"
    VALIDATION = "validation"
    FENCED = "fenced"
    INTERNAL = "internal"


_BY_CLASS: tuple[tuple[type[BaseException], ErrorType], ...] = (
    (FencedError, ErrorType.FENCED),
    (CorruptionError, ErrorType.CORRUPTION),
    (AccessDenied, ErrorType.AUTH),
    (ConflictError, ErrorType.PRECONDITION),
    (ObjectUpdateTimeout, ErrorType.TIMEOUT),
    (UnavailableError, ErrorType.NETWORK),
    (InvalidRequestError, ErrorType.VALIDATION),
    (MemoryError, ErrorType.MEMORY),
    (TimeoutError, ErrorType.TIMEOUT),
    (OSError, ErrorType.NETWORK),
)


def error_type_of(error: BaseException) -> ErrorType:
    """Return the type of the first matching class of the table; ``internal`` for other errors."""
    for class_, error_type in _BY_CLASS:
        if isinstance(error, class_):
            return error_type
    return ErrorType.INTERNAL


def is_retryable(error: BaseException) -> bool:
    """Return whether the same work may succeed later, as it may after a lack of memory or a network failure."""
    if isinstance(error, ShaleError):
        return error.retryable
    return isinstance(error, MemoryError | OSError)
