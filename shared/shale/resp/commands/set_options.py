"""The options of SET and GETEX: conditions, and times of expiry."""

from collections.abc import Mapping

from shale.core.lazy_dataclass import dataclass
from shale.resp.errors import SYNTAX, RespError
from shale.resp.numbers import positive_expiry_ms

EXPIRY_UNITS: Mapping[bytes, tuple[int, bool]] = {
    b"EX": (1000, True),
    b"PX": (1, True),
    b"EXAT": (1000, False),
    b"PXAT": (1, False),
}
"""Milliseconds of one unit, and whether the time is relative to now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetOptions:
    """The options of SET.  ``expire_at`` is in milliseconds since 1970."""

    expire_at: int | None = None
    keeps_ttl: bool = False
    only_absent: bool = False
    only_present: bool = False
    wants_old: bool = False

    @property
    def needs_row(self) -> bool:
        """Whether SET must read the row first."""
        return self.keeps_ttl or self.only_absent or self.only_present or self.wants_old


def set_options(args: list[bytes], now_ms: int) -> SetOptions:
    """Parse the options of SET, in any order.

    Raises:
        RespError: an option is unknown, two options exclude each other, or a time is invalid.
    """
    expire_at, words = _parsed(args, now_ms, "set", frozenset((b"NX", b"XX", b"GET", b"KEEPTTL")))
    if {b"NX", b"XX"} <= words or (expire_at is not None and b"KEEPTTL" in words):
        raise RespError(SYNTAX)
    return SetOptions(
        expire_at=expire_at,
        keeps_ttl=b"KEEPTTL" in words,
        only_absent=b"NX" in words,
        only_present=b"XX" in words,
        wants_old=b"GET" in words,
    )


def getex_options(args: list[bytes], now_ms: int) -> tuple[int | None, bool]:
    """Parse the options of GETEX; return the time of expiry, and whether the value shall stay for ever.

    Raises:
        RespError: an option is unknown, there are two, or the time is invalid.
    """
    expire_at, words = _parsed(args, now_ms, "getex", frozenset((b"PERSIST",)))
    if expire_at is not None and words:
        raise RespError(SYNTAX)
    return expire_at, bool(words)


def _parsed(
    args: list[bytes], now_ms: int, command: str, words: frozenset[bytes]
) -> tuple[int | None, frozenset[bytes]]:
    """Return the time of expiry, and which of the words are there."""
    expire_at: int | None = None
    found: set[bytes] = set()
    rest = iter(args)
    for arg in rest:
        word = arg.upper()
        if word in EXPIRY_UNITS:
            number = next(rest, None)
            if number is None or expire_at is not None:
                raise RespError(SYNTAX)
            unit_ms, is_relative = EXPIRY_UNITS[word]
            expire_at = positive_expiry_ms(number, unit_ms, now_ms if is_relative else 0, command)
        elif word in words:
            found.add(word)
        else:
            raise RespError(SYNTAX)
    return expire_at, frozenset(found)
