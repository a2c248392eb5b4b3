"""Responses and content negotiation shared by several routes."""

from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import cast

import anyio.lowlevel
import msgpack
import orjson

from shale.api.fields import to_base64
from shale.api.messages import RawHeader, Request, Response
from shale.service.http.documents import JSON, MSGPACK, is_msgpack
from shale.service.http.problems import Problem

_TURN_BYTES = 1 << 20
"""So much of a response is encoded before other tasks run."""
_ACCEPT_MAX = 4096
"""Each of its parts is parsed while others wait: the longest header would take most of a second."""


def fields_response(
    fields: Mapping[str, object],
    *,
    packed: bool,
    headers: Iterable[RawHeader] = (),
    status: HTTPStatus = HTTPStatus.OK,
) -> Response:
    """Return an object in the format of the request."""
    if packed:
        return Response(status, to_msgpack(fields), media_type=MSGPACK, headers=headers)
    return Response(status, orjson.dumps(fields), media_type=JSON, headers=headers)


async def values_response(values: list[bytes | None], *, packed: bool) -> Response:
    """Return an object with a list of values, ``null`` for absent ones; others run while large values are encoded.

    Args:
        values: they are removed while large ones are encoded, so that memory has each value once.
        packed: the object is msgpack, otherwise JSON.
    """
    if sum([len(value) for value in values if value is not None]) <= _TURN_BYTES:
        listed = values if packed else [None if value is None else to_base64(value).decode() for value in values]
        return fields_response({"values": listed}, packed=packed)
    body, encode = bytearray(), (_packed_values if packed else _json_values)
    turn_end = _TURN_BYTES
    for piece in encode(values):
        body += piece
        if len(body) > turn_end:
            turn_end = len(body) + _TURN_BYTES
            await anyio.lowlevel.checkpoint()
    return Response(HTTPStatus.OK, body, media_type=MSGPACK if packed else JSON)


def _json_values(values: list[bytes | None]) -> Iterator[bytes]:
    before = b'{"values":['
    for value in _removed(values):
        yield before
        yield b"null" if value is None else b'"%b"' % to_base64(value)
        before = b","
    yield b"]}"


def _packed_values(values: list[bytes | None]) -> Iterator[bytes]:
    packer = msgpack.Packer()
    yield packer.pack_map_header(1)
    yield packer.pack("values")
    yield packer.pack_array_header(len(values))
    yield from map(packer.pack, _removed(values))


def _removed(values: list[bytes | None]) -> Iterator[bytes | None]:
    values.reverse()
    while values:
        yield values.pop()


def is_msgpack_request(call: Request) -> bool:
    """Return whether the body is msgpack, otherwise JSON; raises like ``is_msgpack``."""
    return is_msgpack(call.header(b"content-type"))


def negotiate_media_type(call: Request, offered: Iterable[str]) -> str:
    """Return the offered media type that the ``Accept`` header prefers; without a header the first one.

    Raises:
        Problem: no offered type is acceptable (406), or the header is too long (431).
    """
    text = call.header(b"accept")
    offers = tuple(offered)
    if text is not None and len(text) > _ACCEPT_MAX:
        raise Problem(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"Accept: has more than {_ACCEPT_MAX} characters")
    if text is None or not text.strip():
        return offers[0]
    best, best_rank = "", (0.0, 0)
    preferences = [_preference(part) for part in text.split(",")]
    for offer in offers:
        kind = offer.partition("/")[0]
        ranks = [(weight, len(name)) for name, weight in preferences if name in (offer, f"{kind}/*", "*/*")]
        # Of several matching ranges, the most specific one applies.
        rank = max(ranks, key=lambda each: each[1], default=(0.0, 0))
        if rank[0] > 0.0 and rank > best_rank:
            best, best_rank = offer, rank
    if not best:
        raise Problem(HTTPStatus.NOT_ACCEPTABLE, f"Accept: the available types are {', '.join(offers)}")
    return best


def _preference(part: str) -> tuple[str, float]:
    name, _, parameters = part.partition(";")
    weight = 1.0
    for parameter in parameters.split(";"):
        key, _, value = parameter.strip().partition("=")
        if key.lower() == "q":
            try:
                weight = float(value)
            except ValueError:
                weight = 0.0
    return name.strip().lower(), weight if 0.0 <= weight <= 1.0 else 0.0


def to_msgpack(value: object) -> bytes:
    """Encode a value as msgpack.

    Raises:
        TypeError: msgpack has no encoding for a part of the value.
    """
    # The stubs of the package also describe packers that return ``None``.
    return cast("bytes", msgpack.packb(value))
