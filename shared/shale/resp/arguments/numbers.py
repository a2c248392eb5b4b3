"""Integers in commands, and in the values that they count with."""

import re

from shale.resp.errors import NOT_A_NUMBER, RespError, invalid_expiry

INT64_MAX = (1 << 63) - 1
INT64_MIN = -INT64_MAX - 1
_WHOLE = re.compile(rb"0|-?[1-9][0-9]{0,18}").fullmatch
"""Redis refuses signs, spaces and zeros before a number, too."""


def whole_number(text: bytes, *, least: int = INT64_MIN, most: int = INT64_MAX, problem: str = NOT_A_NUMBER) -> int:
    """Parse a decimal integer from ``least`` to ``most``.

    Raises:
        RespError: with the message ``problem``.
    """
    if _WHOLE(text) is None:
        raise RespError(problem)
    number = int(text)
    if not least <= number <= most:
        raise RespError(problem)
    return number


def expiry_ms(text: bytes, unit_ms: int, base_ms: int, command: str) -> int:
    """Parse a time of expiry, in milliseconds since 1970; it may be in the past.

    Args:
        text: the number of units.
        unit_ms: the milliseconds of one unit.
        base_ms: what the number counts from.
        command: its name, for the error.

    Raises:
        RespError: not an integer, or outside of 64 bits.
    """
    number = whole_number(text) * unit_ms
    if not INT64_MIN <= number <= INT64_MAX - base_ms:
        raise invalid_expiry(command)
    return number + base_ms


def positive_expiry_ms(text: bytes, unit_ms: int, base_ms: int, command: str) -> int:
    """Parse a time of expiry whose number must be positive; see ``expiry_ms``.

    Raises:
        RespError: not a positive integer, or the sum is outside of 64 bits.
    """
    if whole_number(text) <= 0:
        raise invalid_expiry(command)
    return expiry_ms(text, unit_ms, base_ms, command)
