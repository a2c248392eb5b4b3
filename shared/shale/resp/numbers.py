"""Integers in commands."""

from shale.resp.errors import NOT_A_NUMBER, RespError

INT64_MAX = (1 << 63) - 1
_DIGITS_MAX = 20


def whole_number(
    text: bytes, *, least: int = -INT64_MAX - 1, most: int = INT64_MAX, problem: str = NOT_A_NUMBER
) -> int:
    """Parse a decimal integer from ``least`` to ``most``.

    Raises:
        RespError: with the message ``problem``.
    """
    if len(text) > _DIGITS_MAX or not text.removeprefix(b"-").isdigit():
        raise RespError(problem)
    number = int(text)
    if not least <= number <= most:
        raise RespError(problem)
    return number
