"""What is different while a handle is opened: a caller waits, so it must learn soon that the store cannot work."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

from shale.errors import ShaleError

FIRST_ANSWER_S: Final = 15.0
"""A store that has answered nothing for so long is not there, or the URL or the network is wrong."""


class OpeningRequests:
    """Watches the requests of one ``open``.

    Args:
        on_answer: called after the first answer of the store.

    Attributes:
        last_error: the last failure, to explain why an ``open`` was given up.
        is_over: the handle is open, or was given up.  Its tasks inherit this object, and act on it no longer.
    """

    def __init__(self, on_answer: Callable[[], None]) -> None:
        self.last_error: ShaleError | None = None
        self.is_over = False
        self._on_answer: Callable[[], None] | None = on_answer

    def answered(self) -> None:
        """Record an answer."""
        if self._on_answer is not None:
            self._on_answer()
            self._on_answer = None

    def failed(self, error: ShaleError) -> None:
        """Record a failure that is retried."""
        self.last_error = error


OPENING: Final[ContextVar[OpeningRequests | None]] = ContextVar("shale_opening", default=None)
"""The ``open`` that the requests of this task belong to.  Not a state of the store, which open handles may share."""


def current_opening() -> OpeningRequests | None:
    """Return the ``open`` under way in this task."""
    requests = OPENING.get()
    return None if requests is None or requests.is_over else requests
