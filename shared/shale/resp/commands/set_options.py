"""The options of SET and GETEX: conditions, and times of expiry."""

from collections.abc import Mapping

from shale.core.lazy_dataclass import dataclass
from shale.resp.arguments.numbers import positive_expiry_ms
from shale.resp.errors import SYNTAX, RespError

EXPIRY_UNITS: Mapping[bytes, tuple[int, bool]] = {
    b"EX": (1000, True),
    b"PX": (1, True),
    b"EXAT": (1000, False),
    b"PXAT": (1, False),
}
"""Milliseconds of one unit, and whether the time is relative to now."""


@dataclass(frozen=True, slots=True)
class Expiry:
    """A time of expiry as a client wrote it."""

    number: bytes
    unit: bytes

    def at_ms(self, now_ms: int, command: str) -> int:
        """Return the time in milliseconds since 1970.

        Raises:
            RespError: not a positive integer, or outside of 64 bits.
        """
        unit_ms, is_relative = EXPIRY_UNITS[self.unit]
        return positive_expiry_ms(self.number, unit_ms, now_ms if is_relative else 0, command)


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
    expiry, words = _parsed(args, frozenset((b"NX", b"XX", b"GET", b"KEEPTTL")))
    if {b"NX", b"XX"} <= words or (expiry is not None and b"KEEPTTL" in words):
        raise RespError(SYNTAX)
    return SetOptions(
        expire_at=None if expiry is None else expiry.at_ms(now_ms, "set"),
        keeps_ttl=b"KEEPTTL" in words,
        only_absent=b"NX" in words,
        only_present=b"XX" in words,
        wants_old=b"GET" in words,
    )


def getex_options(args: list[bytes]) -> tuple[Expiry | None, bool]:
    """Parse the options of GETEX; return the time of expiry, and whether the value shall stay for ever.

    The number of the time is not parsed: it matters only if there is a value.

    Raises:
        RespError: an option is unknown, or there are two.
    """
    expiry, words = _parsed(args, frozenset((b"PERSIST",)))
    if expiry is not None and words:
        raise RespError(SYNTAX)
    return expiry, bool(words)


def _parsed(args: list[bytes], words: frozenset[bytes]) -> tuple[Expiry | None, frozenset[bytes]]:
    """Return the last time of expiry, and which of the words are there; a time may be repeated in the same unit."""
    expiry: Expiry | None = None
    found: set[bytes] = set()
    rest = iter(args)
    for arg in rest:
        word = arg.upper()
        if word in EXPIRY_UNITS:
            number = next(rest, None)
            if number is None or (expiry is not None and expiry.unit != word):
                raise RespError(SYNTAX)
            expiry = Expiry(number, word)
        elif word in words:
            found.add(word)
        else:
            raise RespError(SYNTAX)
    return expiry, frozenset(found)
