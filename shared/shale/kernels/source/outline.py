"""Kernels: count the elements of a JSON or msgpack object, and cut its long lists into pieces.

They run before anything is decoded, without the interpreter lock, and stop at a limit: a decoded element takes up to 80
times as much memory as its bytes in the body.  They check no more of the syntax than a decoder of the pieces leaves
open: joined by the marks, the pieces are valid if and only if the body is.

Where no kernels are compiled, ``shale.kernels.outline`` only counts, in plain Python.
"""

from typing import Any

import numpy as np

from shale.kernels.layout.outline import (
    COMPLETE,
    ELEMENTS,
    END,
    HEAD,
    ITEM_TOO_LARGE,
    ITEMS,
    KIND,
    MALFORMED,
    MARK_WORDS,
    MARKS,
    NAME,
    NOT_AN_OBJECT,
    PIECE,
    START,
    TEXT_BYTES,
    TOO_MANY,
    TOO_MANY_FIELDS,
    VALUE,
)
from shale.kernels.source.jit import helper, inlined, kernel
from shale.kernels.source.memory import add_word, load_u8, load_u16be, load_u32be, load_u64, set_word, word

_ONES = 0x0101010101010101
_HIGHS = 0x8080808080808080
_QUOTES = 0x2222222222222222
_BACKSLASHES = 0x5C5C5C5C5C5C5C5C


@inlined
def _mark(out: int, marks_max: int, kind: int, start: int, end: int, items: int) -> bool:
    """Add a mark; return whether there was room."""
    count = word(out, MARKS)
    if count >= marks_max:
        return False
    place = out + 8 * (HEAD + MARK_WORDS * count)
    set_word(place, KIND, kind)
    set_word(place, START, start)
    set_word(place, END, end)
    set_word(place, ITEMS, items)
    set_word(out, MARKS, count + 1)
    return True


@inlined
def _is_plain(eight: Any) -> bool:
    """Return whether none of eight bytes is a quote, a backslash or beyond ASCII."""
    quotes = eight ^ np.uint64(_QUOTES)
    backslashes = eight ^ np.uint64(_BACKSLASHES)
    ones = np.uint64(_ONES)
    found = ((quotes - ones) & ~quotes) | ((backslashes - ones) & ~backslashes) | eight
    return (found & np.uint64(_HIGHS)) == np.uint64(0)


@helper
def _skip_text(at: int, end: int, out: int) -> int:
    """Return the address after a JSON string whose first byte is at ``at``; 0 if it does not end."""
    while at < end:
        while end - at >= 8 and _is_plain(load_u64(at)):
            at += 8
        if at == end:
            return 0
        byte = load_u8(at)
        at += 1
        if byte == 0x22:
            return at
        if byte == 0x5C:
            if at < end and load_u8(at) == 0x75:  # \u may be any character
                set_word(out, TEXT_BYTES, 1)
            at += 1
        elif byte >= 0x80:
            set_word(out, TEXT_BYTES, 1)
    return 0


@inlined
def _is_blank(byte: int) -> bool:
    return byte == 0x20 or byte == 0x0A or byte == 0x0D or byte == 0x09


@helper
def _all_blank(at: int, end: int) -> bool:
    while at < end:
        if not _is_blank(load_u8(at)):
            return False
        at += 1
    return True


@kernel("i64(i64, i64, i64, i64, i64, i64)")
def outline_json(data: int, size: int, elements_max: int, piece: int, out: int, marks_max: int) -> int:
    """Outline a JSON object.

    Args:
        data: address of the body.
        size: its bytes.
        elements_max: stop after so many: each ``[``, ``{``, ``,`` and ``:`` outside of text is one.
        piece: elements of a piece; an item may have as many, too.
        out: address of the outline, see ``layout.outline``; the head is zero.
        marks_max: for how many marks it has room.

    Returns:
        a status of ``layout.outline``.
    """
    at = data
    end = data + size
    depth = 0
    elements = 0
    part = data  # where the present name, value or piece starts
    part_elements = 0
    value = data  # where the present value starts
    items = 0
    in_value = False
    in_list = False
    is_cut = False
    has_ended = False
    while at < end:
        byte = load_u8(at)
        at += 1
        if byte == 0x22:  # "
            if depth == 0:
                return NOT_AN_OBJECT if not has_ended else MALFORMED
            if depth == 1 and is_cut:
                return MALFORMED
            at = _skip_text(at, end, out)
            if at == 0:
                return MALFORMED
        elif byte == 0x2C or byte == 0x3A:  # , :
            elements += 1
            if elements > elements_max:
                return TOO_MANY
            if depth == 2 and in_list and byte == 0x2C:
                items += 1
                if elements - part_elements >= piece:
                    if not is_cut and not _all_blank(value, part - 1):
                        return MALFORMED
                    if not _mark(out, marks_max, PIECE, part - data, at - 1 - data, items):
                        return TOO_MANY_FIELDS
                    part = at
                    part_elements = elements
                    items = 0
                    is_cut = True
            elif depth == 1 and byte == 0x3A:
                if in_value:
                    return MALFORMED
                if not _mark(out, marks_max, NAME, part - data, at - 1 - data, 0):
                    return TOO_MANY_FIELDS
                value = at
                part_elements = elements
                in_value = True
                in_list = False
            elif depth == 1:
                if not in_value:
                    return MALFORMED
                if not is_cut and not _mark(out, marks_max, VALUE, value - data, at - 1 - data, 0):
                    return TOO_MANY_FIELDS
                part = at
                part_elements = elements
                in_value = False
                is_cut = False
            elif depth == 0:
                return NOT_AN_OBJECT if not has_ended else MALFORMED
            if elements - part_elements > 2 * piece:
                return ITEM_TOO_LARGE
        elif byte == 0x5B or byte == 0x7B:  # [ {
            elements += 1
            if elements > elements_max:
                return TOO_MANY
            if elements - part_elements > 2 * piece:
                return ITEM_TOO_LARGE
            if depth == 0:
                if byte == 0x5B:
                    return NOT_AN_OBJECT if not has_ended else MALFORMED
                if has_ended:
                    return MALFORMED
                part = at
            elif depth == 1:
                if not in_value or is_cut:
                    return MALFORMED
                in_list = byte == 0x5B
                part = at
                items = 0
            depth += 1
        elif byte == 0x5D or byte == 0x7D:  # ] }
            depth -= 1
            if depth < 0:
                return NOT_AN_OBJECT if not has_ended else MALFORMED
            if depth == 1 and is_cut:
                if byte != 0x5D:
                    return MALFORMED
                if not _mark(out, marks_max, PIECE, part - data, at - 1 - data, items + 1):
                    return TOO_MANY_FIELDS
            elif depth == 0:
                if byte != 0x7D:
                    return MALFORMED
                if in_value:
                    if not is_cut and not _mark(out, marks_max, VALUE, value - data, at - 1 - data, 0):
                        return TOO_MANY_FIELDS
                elif word(out, MARKS) > 0 or not _all_blank(part, at - 1):
                    return MALFORMED
                has_ended = True
                in_value = False
                is_cut = False
        elif (depth == 0 or (depth == 1 and is_cut)) and not _is_blank(byte):
            return NOT_AN_OBJECT if depth == 0 and not has_ended else MALFORMED
    set_word(out, ELEMENTS, elements + 1)
    set_word(out, TEXT_BYTES, word(out, TEXT_BYTES) * size)
    return COMPLETE if has_ended else MALFORMED


@inlined
def _sized(at: int, end: int, width: int) -> int:
    """Return the big-endian length after a first byte; a length beyond the end if the length itself is."""
    if end - at < 1 + width:
        return end - at
    if width == 1:
        return load_u8(at + 1)
    return load_u16be(at + 1) if width == 2 else load_u32be(at + 1)


@helper
def _children(at: int, end: int) -> int:
    """Return how many values follow the first byte of a list or map, as its items; 0 for other types."""
    byte = load_u8(at)
    if 0x80 <= byte <= 0x8F:
        return 2 * (byte & 0x0F)
    if 0x90 <= byte <= 0x9F:
        return byte & 0x0F
    if byte == 0xDC or byte == 0xDD:
        return _sized(at, end, 2 if byte == 0xDC else 4)
    if byte == 0xDE or byte == 0xDF:
        return 2 * _sized(at, end, 2 if byte == 0xDE else 4)
    return 0


@helper
def _length(at: int, end: int, out: int) -> int:
    """Return the bytes of a msgpack value without its items; 0 for the byte that is never used."""
    byte = load_u8(at)
    if byte <= 0x9F or byte >= 0xE0 or byte == 0xC0 or byte == 0xC2 or byte == 0xC3:
        return 1
    if byte <= 0xBF:
        add_word(out, TEXT_BYTES, byte & 0x1F)
        return 1 + (byte & 0x1F)
    if 0xC4 <= byte <= 0xC6:
        width = 1 << (byte - 0xC4)
        return 1 + width + _sized(at, end, width)
    if 0xC7 <= byte <= 0xC9:
        width = 1 << (byte - 0xC7)
        return 2 + width + _sized(at, end, width)
    if byte == 0xCA:
        return 5
    if byte == 0xCB:
        return 9
    if 0xCC <= byte <= 0xD3:
        return 1 + (1 << ((byte - 0xCC) & 3))
    if 0xD4 <= byte <= 0xD8:
        return 2 + (1 << (byte - 0xD4))
    if 0xD9 <= byte <= 0xDB:
        width = 1 << (byte - 0xD9)
        length = _sized(at, end, width)
        add_word(out, TEXT_BYTES, length)
        return 1 + width + length
    if byte == 0xDC or byte == 0xDE:
        return 3
    if byte == 0xDD or byte == 0xDF:
        return 5
    return 0


@helper
def _skip_value(at: int, end: int, out: int, elements_max: int, part_max: int) -> int:
    """Count the elements of one value; return the address after it, or a status as a negative number."""
    elements = word(out, ELEMENTS)
    pending = 1
    while pending > 0:
        if at >= end:
            return -MALFORMED
        elements += 1
        if elements > elements_max:
            return -TOO_MANY
        if elements > part_max:
            return -ITEM_TOO_LARGE
        length = _length(at, end, out)
        if length == 0 or length > end - at:
            return -MALFORMED
        pending += _children(at, end) - 1
        at += length
    set_word(out, ELEMENTS, elements)
    return at


@inlined
def _is_list(byte: int) -> bool:
    return 0x90 <= byte <= 0x9F or byte == 0xDC or byte == 0xDD


@kernel("i64(i64, i64, i64, i64, i64, i64)")
def outline_msgpack(data: int, size: int, elements_max: int, piece: int, out: int, marks_max: int) -> int:
    """Outline a msgpack map; arguments and result are those of ``outline_json``."""
    at = data
    end = data + size
    if size == 0:
        return MALFORMED
    byte = load_u8(at)
    if not 0x80 <= byte <= 0x8F and byte != 0xDE and byte != 0xDF:
        return NOT_AN_OBJECT
    fields = _children(at, end) >> 1
    at += _length(at, end, out)
    set_word(out, ELEMENTS, 1)
    for _ in range(fields):
        part = at
        at = _skip_value(at, end, out, elements_max, word(out, ELEMENTS) + 2 * piece)
        if at < 0:
            return -at
        if not _mark(out, marks_max, NAME, part - data, at - data, 0):
            return TOO_MANY_FIELDS
        part_elements = word(out, ELEMENTS)
        start = part = at
        if at >= end:
            return MALFORMED
        if not _is_list(load_u8(at)):
            at = _skip_value(at, end, out, elements_max, part_elements + 2 * piece)
            if at < 0:
                return -at
        else:
            left = _children(at, end)
            at += _length(at, end, out)
            add_word(out, ELEMENTS, 1)
            part = at
            items = 0
            while left > 0:
                at = _skip_value(at, end, out, elements_max, part_elements + 2 * piece)
                if at < 0:
                    return -at
                left -= 1
                items += 1
                if word(out, ELEMENTS) - part_elements >= piece and left > 0:
                    if not _mark(out, marks_max, PIECE, part - data, at - data, items):
                        return TOO_MANY_FIELDS
                    part = at
                    part_elements = word(out, ELEMENTS)
                    items = 0
                    start = 0
            if start == 0 and not _mark(out, marks_max, PIECE, part - data, at - data, items):
                return TOO_MANY_FIELDS
        if start != 0 and not _mark(out, marks_max, VALUE, start - data, at - data, 0):
            return TOO_MANY_FIELDS
    return COMPLETE if at == end else MALFORMED
