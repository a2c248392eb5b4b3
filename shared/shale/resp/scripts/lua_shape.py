"""The shape of a Lua script: its tokens, without what does not change its meaning.

Libraries ship the same few scripts that guard a lock with other names, quotes, comments and line ends.  Scripts of one
shape do the same.
"""

import re

SCRIPT_BYTES_MAX = 4096
"""Longer scripts have no shape; no script of a lock library is half as long."""

_TOKEN = re.compile(
    rb"""(?P<blank>[ \t\r\n;]+ | --(?!\[)[^\n]*)
       | "(?P<double>[^"\\\n]*)"
       | '(?P<single>[^'\\\n]*)'
       | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
       | (?P<sign>[0-9]+ | == | ~= | <= | >= | \.\. | [-+*/%^\#<>=(){}\[\],.:])
    """,
    re.VERBOSE,
)
_KEPT = frozenset(
    b"and do else elseif end false for if in local nil not or return then true while".split()
    + b"ARGV KEYS ipairs redis string tonumber unpack".split()
)
_OPTIONS = frozenset((b"EX", b"NX", b"PX", b"XX"))
_OPEN, _CLOSE = b"(", b")"
_ADDITION = frozenset((b"+", b"-"))
_CONVERSION_TOKENS = 7

Shape = tuple[bytes, ...]


def shape_of(script: bytes) -> Shape | None:
    """Return the shape of a script, or ``None`` if it has none: then it is no script of a lock library."""
    if len(script) > SCRIPT_BYTES_MAX:
        return None
    tokens: list[bytes] = []
    names: dict[bytes, bytes] = {}
    place = 0
    while place < len(script):
        found = _TOKEN.match(script, place)
        if found is None:
            return None
        place = found.end()
        if found.lastgroup == "blank":
            continue
        text = found[found.lastgroup or 0]
        if found.lastgroup in ("double", "single"):
            tokens.append(b"'" + (text.lower() if _is_any_case(tokens, text) else text))
        elif found.lastgroup == "name" and text not in _KEPT and tokens[-1:] != [b"."]:
            tokens.append(names.setdefault(text, b"$%d" % len(names)))
        else:
            tokens.append(text)
    return tuple(_without_conversions(_without_brackets(tokens)))


def _is_any_case(tokens: list[bytes], text: bytes) -> bool:
    """Return whether a string is the name of a command or an option, which Redis takes in any case."""
    return tokens[-2:] in ([b"call", _OPEN], [b"pcall", _OPEN]) or text.upper() in _OPTIONS


def _without_brackets(tokens: list[bytes]) -> list[bytes]:
    """Remove brackets around whole conditions."""
    closed = _closing_brackets(tokens)
    dropped: set[int] = set()
    for place, token in enumerate(tokens):
        end = closed.get(place + 1) if token in (b"if", b"elseif") else None
        if end is not None and tokens[end + 1 : end + 2] == [b"then"]:
            dropped |= {place + 1, end}
    return [token for place, token in enumerate(tokens) if place not in dropped]


def _without_conversions(tokens: list[bytes]) -> list[bytes]:
    """Replace ``tonumber(ARGV[n])`` by ``ARGV[n]`` where Lua and commands take a number as text, too.

    These are arguments of functions, and operands of ``+`` and ``-``.  A comparison does not: a number never equals
    text.  The first argument is the token of the lock, which the conversion would change.
    """
    kept = list(tokens)
    for place in reversed([at for at, token in enumerate(kept) if token == b"tonumber"]):
        end = place + _CONVERSION_TOKENS
        match kept[place:end]:
            case [_, b"(", b"ARGV", b"[", number, b"]", b")"] if number != b"1":
                if _ADDITION.intersection(kept[place - 1 : place] + kept[end : end + 1]) or kept[place - 1] == b",":
                    kept[place:end] = kept[place + 2 : end - 1]
    return kept


def _closing_brackets(tokens: list[bytes]) -> dict[int, int]:
    """Return where each bracket is closed, by where it is opened."""
    closed: dict[int, int] = {}
    opened: list[int] = []
    for place, token in enumerate(tokens):
        if token == _OPEN:
            opened.append(place)
        elif token == _CLOSE and opened:
            closed[opened.pop()] = place
    return closed
