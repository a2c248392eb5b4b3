"""What is said about code of the user's that failed, and what it may return."""

import asyncio

VALUE_BYTES_MAX = 2**32 - 1

RAISED = (Exception, SystemExit, asyncio.CancelledError)
"""What code of the user's may raise.  A cancellation that nobody asked for, as from an event loop inside a filter, must
not end a task in silence, and ``sys.exit`` must not end the process."""


def is_value(given: object) -> bool:
    """Whether a row can have this value."""
    return isinstance(given, bytes | bytearray | memoryview) and len(given) <= VALUE_BYTES_MAX


def describe_error(error: BaseException) -> str:
    """The class of an error in code of the user's and where it was raised; its text could hold rows."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = f" at {place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place is not None else ""
    return f"{type(error).__name__}{where}"
