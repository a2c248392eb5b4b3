"""Inline commands, as typed into ``telnet``: words, with quotes around words that contain spaces.

Source: the Redis protocol specification, "Inline commands"; quoting as redis-cli shows and reads it.
"""

import re

_WORD = re.compile(
    rb"""[ \t\r\n\0\v\f]*(?:
        "(?P<double>(?:[^"\\]|\\.)*)"(?![^ \t\r\n\0\v\f])
      | '(?P<single>(?:[^'\\]|\\.)*)'(?![^ \t\r\n\0\v\f])
      | (?P<plain>[^ \t\r\n\0\v\f"'][^ \t\r\n\0\v\f]*)
      | (?P<end>\Z)
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_LETTERS = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}


def split_inline(line: bytes) -> list[bytes] | None:
    """Split a line into words; return ``None`` if its quotes are unbalanced.

    Within double quotes, ``\\n``, ``\\r``, ``\\t``, ``\\b``, ``\\a`` and ``\\xHH`` are escapes, and a backslash before
    any other character is dropped.  Within single quotes only ``\\'`` is an escape.
    """
    words: list[bytes] = []
    place = 0
    while True:
        found = _WORD.match(line, place)
        if found is None:
            return None
        place = found.end()
        match found.lastgroup:
            case "double":
                words.append(_ESCAPE.sub(_unescaped, found["double"]))
            case "single":
                words.append(found["single"].replace(b"\\'", b"'"))
            case "plain":
                words.append(found["plain"])
            case _:
                return words


def _unescaped(found: re.Match[bytes]) -> bytes:
    if found[1] is not None:
        return bytes((int(found[1], 16),))
    return _LETTERS.get(found[2], found[2])
