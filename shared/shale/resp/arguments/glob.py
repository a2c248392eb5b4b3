"""Glob patterns of Redis: ``*``, ``?``, ``[abc]``, ``[^a-z]``; ``\\`` escapes the next byte."""

import re
from collections.abc import Callable

_SPECIAL = frozenset(b"*?[\\")


def literal_prefix(pattern: bytes) -> bytes:
    """Return the prefix of all matching keys."""
    for place, byte in enumerate(pattern):
        if byte in _SPECIAL:
            return pattern[:place]
    return pattern


def matcher(pattern: bytes) -> Callable[[bytes], object]:
    """Return a function that is truthy for matching keys.

    Each piece between two stars matches at its first occurrence, without backtracking (atomic groups).  So the time is
    at most the length of the pattern times the length of the key, also for hostile patterns.
    """
    pieces = [""]
    place = 0
    while place < len(pattern):
        byte = pattern[place : place + 1]
        place += 1
        if byte == b"*":
            if pieces[-1] or len(pieces) == 1:
                pieces.append("")
            continue
        if byte == b"?":
            pieces[-1] += "."
        elif byte == b"[":
            text, place = _class(pattern, place)
            pieces[-1] += text
        else:
            if byte == b"\\" and place < len(pattern):
                byte = pattern[place : place + 1]
                place += 1
            pieces[-1] += _escaped(byte[0])
    if len(pieces) == 1:
        regex = pieces[0]
    else:
        first, *middle, last = pieces
        regex = first + "".join(f"(?>.*?{piece})" for piece in middle) + f".*{last}"
    return re.compile(regex.encode("latin-1"), re.DOTALL).fullmatch


def _class(pattern: bytes, place: int) -> tuple[str, int]:
    """Parse a class after its ``[``; return a regular expression and the position after the class.

    An unterminated class ends with the pattern.
    """
    negated = pattern[place : place + 1] == b"^"
    place += negated
    ranges: list[str] = []
    while place < len(pattern) and pattern[place] != ord("]"):
        if pattern[place] == ord("\\") and place + 1 < len(pattern):
            place += 1
            ranges.append(_escaped(pattern[place]))
            place += 1
        elif pattern[place + 1 : place + 2] == b"-" and place + 2 < len(pattern):
            low, high = sorted((pattern[place], pattern[place + 2]))
            ranges.append(f"{_escaped(low)}-{_escaped(high)}")
            place += 3
        else:
            ranges.append(_escaped(pattern[place]))
            place += 1
    if not ranges:
        return ("." if negated else "(?!)"), place + 1
    return f"[{'^' if negated else ''}{''.join(ranges)}]", place + 1


def _escaped(byte: int) -> str:
    return f"\\x{byte:02x}"
