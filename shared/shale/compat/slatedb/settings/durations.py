"""Durations in the notation of SlateDB's settings: ``"250ms"``, ``"1h 5m"``, ``"1s+500ms"``.

Source: the behaviour of SlateDB 0.17, whose duration parser takes sums of whole numbers with a unit.
"""

import re

_NS_PER = {
    "y": 365 * 86_400 * 10**9,
    "mon": 30 * 86_400 * 10**9,
    "w": 7 * 86_400 * 10**9,
    "d": 86_400 * 10**9,
    "h": 3_600 * 10**9,
    "m": 60 * 10**9,
    "min": 60 * 10**9,
    "s": 10**9,
    "": 10**9,
    "ms": 10**6,
    "us": 10**3,
    "µs": 10**3,
    "ns": 1,
}
_TERM = re.compile(r"\s*\+?\s*(\d+)(?:(mon|min|ms|us|µs|ns|[ywdhms])(?![a-z])|(?![a-z]))", re.IGNORECASE)


def parse_duration_ms(text: str) -> int:
    """Return whole milliseconds; fractions are cut.

    Raises:
        ValueError: not a duration.
    """
    at, total_ns = 0, 0
    while at < len(text.rstrip()):
        term = _TERM.match(text, at)
        if term is None:
            raise ValueError(f"{text!r} is not a duration such as 250ms or 1h+30m")
        total_ns += int(term[1]) * _NS_PER[(term[2] or "").lower()]
        at = term.end()
    if not at:
        raise ValueError(f"{text!r} is not a duration such as 250ms or 1h+30m")
    return total_ns // 10**6


def format_duration(ms: int) -> str:
    """Return a duration as SlateDB writes it: seconds, milliseconds, or their sum."""
    seconds, rest = divmod(ms, 1000)
    if not rest:
        return f"{seconds}s"
    return f"{seconds}s+{rest:03d}ms" if seconds else f"{rest:03d}ms"
