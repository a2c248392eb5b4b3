"""What adapters raise besides the conditions of ``shale.errors``.

A ``RequestFailed`` is an ``UnavailableError`` that remembers why, for the metrics.  ``NotSupported`` never leaves this
room: the retry layer answers it by doing without (docs/protocol.md 1.5).
"""

from shale.errors import ShaleError, UnavailableError
from shale.telemetry.error_types import ErrorType, error_type_of


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


def failure_type(error: BaseException) -> ErrorType:
    """The label under which a failed request is counted and logged."""
    return error.error_type if isinstance(error, RequestFailed) else error_type_of(error)
