"""Errors that adapters raise besides those of ``shale.errors``.

A ``RequestFailed`` is an ``UnavailableError`` with a type, for metrics.  ``NotSupported`` never leaves this package:
the retry layer does without the feature (docs/reference/protocol.md 1.5).
"""

from shale.errors import ShaleError, UnavailableError
from shale.telemetry.error_types import ErrorType, error_type_of


class RequestFailed(UnavailableError):
    """A request was not answered, or failed.  A put may or may not have taken effect."""

    def __init__(self, message: str, error_type: ErrorType = ErrorType.NETWORK) -> None:
        super().__init__(message)
        self.error_type = error_type


class NotSupported(ShaleError):
    """The store does not support a feature.  ``what`` is ``attributes`` or ``conditional put``."""

    def __init__(self, what: str, url: str) -> None:
        super().__init__(f"{url}: the store does not support {what}")
        self.what = what


def failure_type(error: BaseException) -> ErrorType:
    """Return the label of a failed request in metrics and logs."""
    return error.error_type if isinstance(error, RequestFailed) else error_type_of(error)
