"""Parsers of durations and sizes (docs/how-to/configure.md).

Durations: ``timedelta``, a number of seconds, or text such as ``"250ms"``, ``"1h30m"``, ``"7days 30min 10s"``.
Sizes: a number of bytes, or text such as ``"64MiB"`` (2**20) and ``"64MB"`` (10**6).
"""

import math
import re
from datetime import timedelta
from typing import TypeAlias
from uuid import UUID

from shale.errors import InvalidRequestError, WrongType

Duration: TypeAlias = timedelta | float | int | str
Size: TypeAlias = int | str

_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zµ]+)\s*", re.IGNORECASE)
_SECONDS = {
    **dict.fromkeys(("ns", "nsec"), 1e-9),
    **dict.fromkeys(("us", "µs", "usec"), 1e-6),
    **dict.fromkeys(("ms", "msec", "millis"), 1e-3),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
    **dict.fromkeys(("w", "wk", "wks", "week", "weeks"), 604800.0),
    **dict.fromkeys(("month", "months"), 2_630_016.0),
    **dict.fromkeys(("y", "yr", "yrs", "year", "years"), 31_557_600.0),
}
"""A month is 30.44 days and a year 365.25, as for SlateDB's command line (the crate humantime)."""

_MONTHS = re.compile(r"(?<=\d)\s*M(?![A-Za-z])")

_BYTES = {
    "": 1,
    "b": 1,
    **{unit + "b": 1000**power for power, unit in enumerate("kmgtp", start=1)},
    **{unit + "ib": 1024**power for power, unit in enumerate("kmgtp", start=1)},
}
_INT_MAX = 2**64 - 1
_NANOSECONDS = 1e9
_DIGITS_MAX = 4000
_SHOWN_BITS_MAX = 128
_SHOWN_MAX = 60
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)


def parse_duration_s(value: object, *, name: str = "duration") -> float:
    """Parse a duration, in seconds.

    Raises:
        InvalidRequestError: not a duration, negative, or not finite; names the setting.
    """
    if isinstance(value, bool):
        raise WrongType(f"{name}: {value!r} is not a duration")
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, int | float):
        seconds = _as_float(value)
    elif isinstance(value, str):
        seconds = _duration_from_text(value, name)
    else:
        raise WrongType(f"{name}: {value!r} is not a duration; give a timedelta, seconds, or text such as 250ms")
    if not math.isfinite(seconds) or seconds < 0:
        raise InvalidRequestError(f"{name}: {format_value(value)} is negative or not finite")
    if not math.isfinite(seconds * _NANOSECONDS):
        raise InvalidRequestError(f"{name}: {format_value(value)} is too long")
    return seconds


def parse_duration_ms(value: object, *, name: str = "duration") -> int:
    """Parse a duration, in whole milliseconds; raises like ``parse_duration_s``."""
    return round(parse_duration_s(value, name=name) * 1000)


def parse_lifetime_ms(value: object) -> int | None:
    """Parse a checkpoint lifetime, in whole milliseconds; ``None``: no expiry.

    Unlike in settings, ``M`` is a month, as on SlateDB's command line; ``m`` is a minute everywhere.

    Raises:
        InvalidRequestError: not a duration.
    """
    if value is None:
        return None
    return parse_duration_ms(_MONTHS.sub("months", value) if isinstance(value, str) else value, name="lifetime")


def parse_size(value: object, *, name: str = "size") -> int:
    """Read a size as bytes.

    Raises:
        InvalidRequestError: not a size, or not a whole number of bytes; names the setting.
    """
    if isinstance(value, bool):
        raise WrongType(f"{name}: {value!r} is not a size")
    if isinstance(value, int):
        return _bounded(value, value, name)
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    factor = _BYTES.get(match[2].lower()) if match is not None else None
    if match is None or factor is None:
        raise InvalidRequestError(f"{name}: {format_value(value)} is not a size; write for example 64MiB")
    if "." not in match[1]:
        return _bounded(parse_integer(match[1], name=name) * factor, value, name)
    size = float(match[1]) * factor
    if not size.is_integer():  # nor is infinity
        raise InvalidRequestError(f"{name}: {format_value(value)} is not a whole number of bytes")
    return _bounded(int(size), value, name)


def parse_integer(text: str, *, name: str) -> int:
    """Parse a non-negative integer in decimal digits.

    Raises:
        InvalidRequestError: not such a number, or more than 64 bits; the message names the setting.
    """
    digits = text.strip()
    if not digits.isascii() or not digits.isdigit():
        raise InvalidRequestError(f"{name}: {format_value(text)} is not a number")
    # Python refuses to convert thousands of digits, with an error that names nothing.
    return _bounded(int(digits) if len(digits) <= _DIGITS_MAX else _INT_MAX + 1, text, name)


def parse_checkpoint_id(text: UUID | str) -> UUID:
    """Parse the id of a checkpoint.

    Raises:
        InvalidRequestError: not a UUID.
    """
    if isinstance(text, UUID):
        return text
    if not isinstance(text, str):
        raise WrongType(f"{format_value(text)} is not the id of a checkpoint (a UUID, or its text)")
    try:
        return UUID(text.strip())
    except ValueError:
        raise InvalidRequestError(f"{format_value(text)} is not the id of a checkpoint (a UUID)") from None


def format_value(value: object) -> str:
    """Format a value for an error message; long values are cut."""
    if isinstance(value, int) and value.bit_length() > _SHOWN_BITS_MAX:
        return f"a number of {value.bit_length()} bits"
    shown = repr(value)
    return shown if len(shown) <= _SHOWN_MAX else f"{shown[:_SHOWN_MAX]}… ({len(shown)} characters)"


def is_too_large(number: int) -> bool:
    """Return whether an integer is outside of the range of any setting."""
    return not -_INT_MAX <= number <= _INT_MAX


def _bounded(number: int, given: object, name: str) -> int:
    if number < 0:
        raise InvalidRequestError(f"{name}: {format_value(given)} is negative")
    if is_too_large(number):
        raise InvalidRequestError(f"{name}: {format_value(given)} is too large: at most {_INT_MAX}")
    return number


def _as_float(number: float) -> float:
    """Convert to a float; numbers beyond its range become infinite."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _duration_from_text(text: str, name: str) -> float:
    position, seconds = 0, 0.0
    while position < len(text):
        match = _PART.match(text, position)
        unit = _SECONDS.get(match[2].lower()) if match is not None else None
        if match is None or unit is None:
            break
        seconds += float(match[1]) * unit
        position = match.end()
    if position == 0 or position < len(text):
        if text.strip() == "0":
            return 0.0
        raise InvalidRequestError(
            f"{name}: {format_value(text)} is not a duration; write for example 250ms, 5m or 1h30m"
        )
    return seconds
