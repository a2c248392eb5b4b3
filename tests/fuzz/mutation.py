"""Changes of bytes: bits, numbers at the ends of their ranges, and pieces that come, go and repeat."""

import random
import re
from collections.abc import Callable, Sequence

NUMBERS = tuple(
    sorted(
        {
            value + off
            for value in (0, 1 << 4, 1 << 7, 1 << 8, 1 << 15, 1 << 16, 1 << 31, 1 << 32, 1 << 63, 1 << 64)
            for off in (-1, 0, 1)
        }
    )
)
"""Where readers of numbers fail."""
SIZE_MAX = 1 << 20
"""Longer inputs are cut: what large inputs do is the subject of the limits, not of the parsers."""
_DIGITS = re.compile(rb"-?[0-9]+")
_TEXT_NUMBERS = (b"0", b"-1", b"1e400", b"9" * 30, b"9" * 5000, b"1.5", b"NaN", b"0x10", b"", b"\xd9\xa3")


def number_bytes(rng: random.Random, width: int) -> bytes:
    """Return a number of ``width`` bytes that is likely at the end of a range, in either order of bytes."""
    value = rng.choice(NUMBERS) if rng.random() < 0.8 else rng.getrandbits(8 * width)
    return (value & (1 << 8 * width) - 1).to_bytes(width, rng.choice(("little", "big")))


def put(data: bytes, at: int, new: bytes) -> bytes:
    """Overwrite bytes, without making the input longer."""
    return data[:at] + new[: len(data) - at] + data[at + len(new) :]


def mutate_bytes(rng: random.Random, data: bytes) -> bytes:
    """Return the input with one change."""
    change = rng.choice(_CHANGES) if data else _insert
    return change(rng, data)[:SIZE_MAX]


def _place(rng: random.Random, data: bytes) -> int:
    """Return a place; heads and tails are where headers and footers are."""
    size = len(data)
    kind = rng.random()
    if kind < 0.25:
        return rng.randrange(min(size, 32))
    if kind < 0.5:
        return size - 1 - rng.randrange(min(size, 32))
    return rng.randrange(size)


def _flip(rng: random.Random, data: bytes) -> bytes:
    at = _place(rng, data)
    return put(data, at, bytes([data[at] ^ 1 << rng.randrange(8)]))


def _byte(rng: random.Random, data: bytes) -> bytes:
    return put(data, _place(rng, data), bytes([rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))]))


def _number(rng: random.Random, data: bytes) -> bytes:
    return put(data, _place(rng, data), number_bytes(rng, rng.choice((1, 2, 4, 8))))


def _step(rng: random.Random, data: bytes) -> bytes:
    """Add a little to a number."""
    width, order = rng.choice((1, 2, 4, 8)), rng.choice(("little", "big"))
    at = _place(rng, data)
    value = int.from_bytes(data[at : at + width], order) + rng.choice((-2, -1, 1, 2, 16, -16))
    return put(data, at, (value & (1 << 8 * width) - 1).to_bytes(width, order))


def _cut(rng: random.Random, data: bytes) -> bytes:
    return data[: _place(rng, data)]


def _remove(rng: random.Random, data: bytes) -> bytes:
    at = _place(rng, data)
    return data[:at] + data[at + rng.choice((1, 2, 4, 8, rng.randrange(1, 200))) :]


def _insert(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    size = rng.choice((1, 2, 4, 8, rng.randrange(1, 100)))
    return data[:at] + rng.choice((rng.randbytes(size), bytes(size), b"\xff" * size)) + data[at:]


def _repeat(rng: random.Random, data: bytes) -> bytes:
    at = _place(rng, data)
    piece = data[at : at + rng.choice((1, 2, 4, 8, 16, rng.randrange(1, 300)))]
    where = rng.randrange(len(data) + 1)
    return data[:where] + piece * rng.choice((1, 1, 2, 50)) + data[where:]


def _copy_over(rng: random.Random, data: bytes) -> bytes:
    at = _place(rng, data)
    return put(data, _place(rng, data), data[at : at + rng.choice((1, 2, 4, 8, 16, 64))])


def _digits(rng: random.Random, data: bytes) -> bytes:
    """Replace a number that is written as text."""
    found = list(_DIGITS.finditer(data[: 1 << 14]))
    if not found:
        return _number(rng, data)
    one = rng.choice(found)
    new = rng.choice((*_TEXT_NUMBERS, b"%d" % rng.choice(NUMBERS)))
    return data[: one.start()] + new + data[one.end() :]


_CHANGES: Sequence[Callable[[random.Random, bytes], bytes]] = (
    *(_flip, _byte, _byte, _number, _number, _step, _cut, _remove, _insert, _repeat, _copy_over, _digits),
)


def words_mutation(words: Sequence[bytes]) -> Callable[[random.Random, bytes], bytes]:
    """Return a change that puts words of the parser's language into the input."""

    def change(rng: random.Random, data: bytes) -> bytes:
        at = rng.randrange(len(data) + 1)
        size = rng.choice((0, 0, 1, 4, 16))
        return (data[:at] + rng.choice(words) + data[at + size :])[:SIZE_MAX]

    return change


def any_of(*changes: Callable[[random.Random, bytes], bytes]) -> Callable[[random.Random, bytes], bytes]:
    """Return a change that is one of several."""
    return lambda rng, data: rng.choice(changes)(rng, data)
