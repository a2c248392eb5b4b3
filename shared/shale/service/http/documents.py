"""Bodies that are objects of names and values, in JSON or msgpack.

What a body becomes takes up to 80 times its bytes of memory.  So a body that is not small is outlined first: that
counts its elements, which are limited and charged to the budget of bodies, and cuts its long lists into pieces.  Each
piece is decoded in less than a millisecond, so that other threads get the interpreter in between.
"""

from collections.abc import Sequence
from http import HTTPStatus
from typing import TypeAlias, cast

import msgpack
import orjson

from shale.kernels.layout.outline import (
    COMPLETE,
    ITEM_TOO_LARGE,
    MALFORMED,
    NAME,
    TOO_MANY,
    TOO_MANY_FIELDS,
    VALUE,
)
from shale.kernels.outline import FIELDS_MAX, PIECE_ELEMENTS, Outline
from shale.service.http.problems import Problem, bad_request, too_large

JSON = "application/json"
MSGPACK = "application/msgpack"
SMALL_BYTES = 1024
"""Smaller bodies are decoded as they are: they take less than 80 KiB."""
LARGE_BYTES = 128 * 1024
"""Larger bodies are decoded in a thread, so that they do not block the event loop."""
ELEMENT_BYTES = 80
"""Memory of an element without the bytes that it has in the body: an empty map and its place in a list take 72."""
TEXT_FACTOR = 4
"""Bytes of memory per character, if a text has characters beyond the basic plane."""

Fields: TypeAlias = dict[str, object]
"""In msgpack a name may also be bytes; it is unknown then."""
Data: TypeAlias = bytes | bytearray

_MSGPACK_NAMES = frozenset({MSGPACK, "application/x-msgpack", "application/vnd.msgpack"})
_LIST_32 = b"\xdd"


def is_msgpack(content_type: str | None) -> bool:
    """Return whether a body of this content type is msgpack; without a content type it is JSON.

    Raises:
        Problem: the type is neither JSON nor msgpack (415).
    """
    content_type = (content_type or JSON).partition(";")[0].strip().lower()
    if content_type in _MSGPACK_NAMES:
        return True
    if content_type == JSON or content_type.endswith("+json"):
        return False
    raise Problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"{content_type}: send {JSON} or {MSGPACK}")


def require_outline(found: Outline, data: Data, *, packed: bool, elements_max: int) -> None:
    """Check the outline of a body.

    Raises:
        Problem: the body is malformed, or not an object (400), or it has too many elements (413).
    """
    if found.status == COMPLETE:
        return
    if found.status == TOO_MANY:
        raise too_large(f"the body has more than {elements_max} elements")
    if found.status == ITEM_TOO_LARGE:
        raise too_large(f"an item of the body has more than {PIECE_ELEMENTS} elements")
    if found.status == TOO_MANY_FIELDS:
        raise bad_request(f"the body has more than {FIELDS_MAX} fields")
    if len(data) <= LARGE_BYTES and found.elements <= PIECE_ELEMENTS:
        decode(data, packed=packed)  # tells what is wrong, and where
    raise _malformed(packed=packed) if found.status == MALFORMED else _not_an_object()


def expansion_bytes(found: Outline) -> int:
    """Return how much memory an outlined body takes when it is decoded, at most."""
    return ELEMENT_BYTES * found.elements + TEXT_FACTOR * found.text_bytes


def decode(data: Data, *, packed: bool, outlined: Outline | None = None) -> Fields:
    """Decode a body that is an object; may run in a thread.

    Args:
        data: the body.
        packed: it is msgpack, otherwise JSON.
        outlined: its outline; with one, long lists are decoded piece by piece.

    Raises:
        Problem: the body is malformed, or not an object (400).
    """
    if outlined is not None and outlined.marks and outlined.elements > PIECE_ELEMENTS:
        return decode_pieces(data, outlined.marks, packed=packed)
    fields = _decoded(data, packed=packed)
    if not isinstance(fields, dict):
        raise _not_an_object()
    return fields


def decode_pieces(data: Data, marks: list[list[int]], *, packed: bool) -> Fields:
    """Decode the ranges of a body one after the other."""
    body = memoryview(data)
    fields: Fields = {}
    name = ""
    is_in_pieces = False
    for kind, start, end, count in marks:
        part = body[start:end]
        if kind == NAME:
            name = _name_of(_decoded(part, packed=packed), packed=packed)
            is_in_pieces = False
        elif kind == VALUE:
            fields[name] = _decoded(part, packed=packed)
        else:
            items = _items(part, count, packed=packed)
            if is_in_pieces:
                cast("list[object]", fields[name]).extend(items)
            else:
                fields[name] = list(items)
            is_in_pieces = True
    return fields


def _items(part: memoryview, count: int, *, packed: bool) -> Sequence[object]:
    """Decode so many items of a list without its brackets."""
    whole = b"".join((_LIST_32, count.to_bytes(4, "big"), part) if packed else (b"[", part, b"]"))
    items = _decoded(whole, packed=packed)
    if not isinstance(items, list | tuple) or len(items) != count:
        raise _malformed(packed=packed)
    return items


def _name_of(name: object, *, packed: bool) -> str:
    if isinstance(name, str) or (packed and isinstance(name, bytes)):
        return cast("str", name)
    raise _malformed("a name is not text", packed=packed)


def _decoded(data: Data | memoryview, *, packed: bool) -> object:
    try:
        return msgpack.unpackb(data, use_list=False, strict_map_key=True) if packed else orjson.loads(data)
    except (ValueError, msgpack.UnpackException) as error:
        reason = str(error)
    raise _malformed(reason, packed=packed)  # not in the handler: the decoder's error holds the whole body


def _malformed(reason: str = "", *, packed: bool) -> Problem:
    return bad_request(f"the body is not {'msgpack' if packed else 'JSON'}{reason and ': '}{reason}")


def _not_an_object() -> Problem:
    return bad_request("the body is not an object of names and values")
