"""Patterns of keys as Redis has them: ``*``, ``?``, ``[abc]``, ``[^a-z]``; a byte behind ``\\`` means itself."""

import re
from collections.abc import Callable

_SPECIAL = frozenset(b"*?[\\")


def literal_prefix(pattern: bytes) -> bytes:
    """What every key begins with that matches."""
    for place, byte in enumerate(pattern):
        if byte in _SPECIAL:
            return pattern[:place]
    return pattern


def matcher(pattern: bytes) -> Callable[[bytes], object]:
    """Says of a key whether it matches, by something true.

    Everything between two stars is found at its first place and never looked for again, so a hostile pattern takes
    time in proportion to its length times that of the key, and not more.
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
    """A class behind its ``[`` as a regular expression, and the place behind it; one without end ends with the
    pattern."""
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
