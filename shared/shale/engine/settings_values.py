"""Durations and sizes as people write them (docs/operations.md 13).

Durations: ``timedelta``, a number of seconds, or text such as ``"250ms"``, ``"1h30m"``, ``"7days 30min 10s"``.
Sizes: a number of bytes, or text such as ``"64MiB"`` (2**20) and ``"64MB"`` (10**6).
"""

import math
import re
from datetime import timedelta
from typing import TypeAlias

from shale.errors import InvalidRequestError

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
    **dict.fromkeys(("w", "week", "weeks"), 604800.0),
}
_BYTES = {
    "": 1,
    "b": 1,
    **{unit + "b": 1000**power for power, unit in enumerate("kmgtp", start=1)},
    **{unit + "ib": 1024**power for power, unit in enumerate("kmgtp", start=1)},
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)


def parse_duration_s(value: object, *, name: str = "duration") -> float:
    """Read a duration as seconds.

    Raises:
        InvalidRequestError: not a duration, negative, or not finite; names the setting.
    """
    if isinstance(value, bool):
        raise InvalidRequestError(f"{name}: {value!r} is not a duration")
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, int | float):
        seconds = float(value)
    elif isinstance(value, str):
        seconds = _duration_from_text(value, name)
    else:
        raise InvalidRequestError(f"{name}: {value!r} is not a duration")
    if not math.isfinite(seconds) or seconds < 0:
        raise InvalidRequestError(f"{name}: {value!r} is negative or not finite")
    return seconds


def parse_duration_ms(value: object, *, name: str = "duration") -> int:
    """Read a duration as whole milliseconds."""
    return round(parse_duration_s(value, name=name) * 1000)


def parse_size(value: object, *, name: str = "size") -> int:
    """Read a size as bytes.

    Raises:
        InvalidRequestError: not a size, or not a whole number of bytes; names the setting.
    """
    if isinstance(value, bool):
        raise InvalidRequestError(f"{name}: {value!r} is not a size")
    if isinstance(value, int):
        if value < 0:
            raise InvalidRequestError(f"{name}: {value!r} is negative")
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    factor = _BYTES.get(match[2].lower()) if match is not None else None
    if match is None or factor is None:
        raise InvalidRequestError(f"{name}: {value!r} is not a size; write for example 64MiB")
    size = float(match[1]) * factor if "." in match[1] else int(match[1]) * factor
    if size != int(size):
        raise InvalidRequestError(f"{name}: {value!r} is not a whole number of bytes")
    return int(size)


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
        raise InvalidRequestError(f"{name}: {text!r} is not a duration; write for example 250ms, 5m or 1h30m")
    return seconds
