"""The floating-point numbers of ``INCRBYFLOAT``: long doubles with 64 bits of precision, as Redis has them on x86.

Doubles of Python would answer 4.0999999999999996 where Redis answers 4.1.
"""

import re
from fractions import Fraction

PRECISION_BITS = 64
EXPONENT_MAX = 16_384
"""Numbers from two to this power are infinite."""

EXPONENT_MIN = -16_445
"""The smallest positive number is two to this power."""

_TEXT_BYTES_MAX = 5 * 1024 - 1
_DECIMALS = 17
_DIGITS_AT_ONCE = 4000
# A text matches in one way at most: two parts that both take digits would be divided in every way before a refusal.
_DECIMAL = re.compile(rb"([+-]?)(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))(?:[eE]([+-]?[0-9]{1,6}))?").fullmatch
_INFINITE = re.compile(rb"[+-]?inf(?:inity)?", re.IGNORECASE).fullmatch


def parse(text: bytes) -> Fraction | None:
    """Return the number that is nearest to a text, or ``None`` for infinity.

    Raises:
        ValueError: the text is not a number, or too large or too small for one.
    """
    if len(text) > _TEXT_BYTES_MAX:
        raise ValueError("too long")
    if _INFINITE(text):
        return None
    found = _DECIMAL(text)
    if found is None:
        raise ValueError("not a number")
    sign, whole, after_whole, after_point, exponent = found.groups(b"")
    power = int(exponent or b"0")
    if abs(power) > EXPONENT_MAX:
        # Its digits would not fit into memory; zero with such an exponent is refused, too.
        raise ValueError("out of range")
    decimals = after_whole or after_point
    exact = _integer(whole + decimals) * Fraction(10) ** (power - len(decimals))
    number = rounded(-exact if sign == b"-" else exact)
    if number is None or (number == 0 and exact != 0):
        raise ValueError("out of range")
    return number


def rounded(exact: Fraction) -> Fraction | None:
    """Return the nearest long double, of two the even one; ``None`` for infinity."""
    if exact == 0:
        return exact
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if size < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** max(exponent - PRECISION_BITS + 1, EXPONENT_MIN)
    number = round(exact / unit) * unit
    return None if abs(number) >= Fraction(2) ** EXPONENT_MAX else number


def shown(number: Fraction) -> bytes:
    """Return a number with at most 17 decimals, without zeros at the end."""
    digits = round(abs(number) * 10**_DECIMALS)
    whole, decimals = divmod(digits, 10**_DECIMALS)
    sign = "-" if number < 0 and digits else ""
    return f"{sign}{_digits(whole)}.{decimals:0{_DECIMALS}}".rstrip("0").rstrip(".").encode()


def _integer(digits: bytes) -> int:
    """Return the number that has these digits, which may be more than Python converts at once."""
    number = 0
    for start in range(0, len(digits), _DIGITS_AT_ONCE):
        part = digits[start : start + _DIGITS_AT_ONCE]
        number = number * 10 ** len(part) + int(part)
    return number


def _digits(whole: int) -> str:
    """Return the digits of a number, of which the largest have more than Python converts at once."""
    high, low = divmod(whole, 10**_DIGITS_AT_ONCE)
    return f"{high}{low:0{_DIGITS_AT_ONCE}}" if high else f"{low}"
