"""Errors and results of user code: merge operators, filters and codecs."""

import asyncio

from shale.core.bytes_like import BytesLike

VALUE_BYTES_MAX = 2**32 - 1

USER_CODE_ERRORS = (Exception, SystemExit, asyncio.CancelledError)
"""What user code may raise.  A cancellation from an event loop inside a filter must not end a task silently, and
``sys.exit`` must not end the process."""


def is_value(given: object) -> bool:
    """Return whether a row can have this value."""
    return isinstance(given, BytesLike) and len(given) <= VALUE_BYTES_MAX


def describe_error(error: BaseException) -> str:
    """Return the class of an error and the line that raised it, without its text, which could hold rows."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = f" at {place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place is not None else ""
    return f"{type(error).__name__}{where}"
