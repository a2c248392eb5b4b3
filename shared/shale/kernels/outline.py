"""The outline of a JSON or msgpack object: its elements are counted, and its long lists cut, before it is decoded."""

from typing import NamedTuple

import numpy as np

from shale.kernels.columns import address_of
from shale.kernels.dispatch import compiled, use_kernels
from shale.kernels.layout.outline import (
    COMPLETE,
    ELEMENTS,
    HEAD,
    MALFORMED,
    MARK_WORDS,
    MARKS,
    TEXT_BYTES,
    TOO_MANY,
)

FIELDS_MAX = 64
"""Limit of fields of the object."""
PIECE_ELEMENTS = 8192
"""Elements of a piece: decoding them takes less than a millisecond.  One item may have twice as many."""

_COUNTED = b",:[{"
_STEP_BYTES = 1 << 18
_EIGHT_BITS, _SIXTEEN_BITS, _LONG = 1, 2, 4
_LENGTHS = {
    **{0xC4 + place: width for place, width in enumerate((_EIGHT_BITS, _SIXTEEN_BITS, _LONG))},
    **{0xC7 + place: width for place, width in enumerate((_EIGHT_BITS, _SIXTEEN_BITS, _LONG))},
    **{0xD9 + place: width for place, width in enumerate((_EIGHT_BITS, _SIXTEEN_BITS, _LONG))},
    **dict.fromkeys((0xDC, 0xDE), _SIXTEEN_BITS),
    **dict.fromkeys((0xDD, 0xDF), _LONG),
}
"""Bytes of the length after the first byte of binary data, extensions, text, lists and maps."""
_FIXED = {
    0xCA: 4,
    0xCB: 8,
    **{0xCC + place: 1 << place % 4 for place in range(8)},
    **{0xD4 + n: 1 + (1 << n) for n in range(5)},
}
"""Bytes after the first byte of numbers and short extensions."""


class Outline(NamedTuple):
    """What is known of an object before it is decoded.

    ``status`` is one of ``layout.outline``; the rest is complete only with ``COMPLETE``.  ``text_bytes``: of text, each
    of which may take four bytes of memory.  ``marks``: kind, start, end and number of items of each range; without any
    the object is decoded at once.
    """

    status: int
    elements: int
    text_bytes: int
    marks: list[list[int]]


def outline(
    data: bytes | bytearray, *, packed: bool, elements_max: int, piece_elements: int = PIECE_ELEMENTS
) -> Outline:
    """Outline a body; may run in a thread.

    Args:
        data: the body.
        packed: it is msgpack, otherwise JSON.
        elements_max: stop after so many elements.
        piece_elements: how many elements a piece has.
    """
    if not use_kernels():
        return (_count_msgpack if packed else _count_json)(data, elements_max)
    # Each field has a name and a value, or a name and pieces, of which all but the last are full.
    marks_max = 2 * FIELDS_MAX + elements_max // piece_elements
    body = np.frombuffer(data, np.uint8)
    out = np.zeros(HEAD + MARK_WORDS * marks_max, np.int64)
    run = compiled.outline_msgpack if packed else compiled.outline_json
    status = run(address_of(body), len(body), elements_max, piece_elements, address_of(out), marks_max)
    marks: list[list[int]] = out[HEAD : HEAD + MARK_WORDS * int(out[MARKS])].reshape(-1, MARK_WORDS).tolist()
    return Outline(status, int(out[ELEMENTS]), int(out[TEXT_BYTES]), marks)


def _count_json(data: bytes | bytearray, elements_max: int) -> Outline:
    """Count what separates elements, also where it is part of a text."""
    elements = 1
    for start in range(0, len(data), _STEP_BYTES):
        step = data[start : start + _STEP_BYTES]
        elements += sum(step.count(byte) for byte in _COUNTED)
        if elements > elements_max:
            return Outline(TOO_MANY, elements, 0, [])
    is_wide = b"\\u" in data or not data.isascii()
    return Outline(COMPLETE, elements, len(data) if is_wide else 0, [])


def _count_msgpack(data: bytes | bytearray, elements_max: int) -> Outline:
    at = elements = text_bytes = 0
    pending = 1
    while pending:
        if at >= len(data):
            return Outline(MALFORMED, elements, text_bytes, [])
        elements += 1
        if elements > elements_max:
            return Outline(TOO_MANY, elements, text_bytes, [])
        byte = data[at]
        width = _LENGTHS.get(byte, 0)
        length = int.from_bytes(data[at + 1 : at + 1 + width], "big")
        at += 1 + width
        pending -= 1
        if byte in (0xDC, 0xDD):
            pending += length
        elif byte in (0xDE, 0xDF):
            pending += 2 * length
        elif width:
            at += length + (0xC7 <= byte <= 0xC9)
            text_bytes += length if byte >= 0xD9 else 0
        elif 0x80 <= byte <= 0x8F:
            pending += 2 * (byte & 0x0F)
        elif 0x90 <= byte <= 0x9F:
            pending += byte & 0x0F
        elif 0xA0 <= byte <= 0xBF:
            at += byte & 0x1F
            text_bytes += byte & 0x1F
        else:
            at += _FIXED.get(byte, 0)
    return Outline(COMPLETE if at == len(data) else MALFORMED, elements, text_bytes, [])
