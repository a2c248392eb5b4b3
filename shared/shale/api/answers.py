"""Answers of more than one call."""

from collections.abc import Iterable, Mapping
from http import HTTPStatus

import orjson

from shale.api.call import Answer, Call, RawHeader
from shale.api.packing import as_msgpack
from shale.service.bodies import JSON, MSGPACK, is_msgpack
from shale.service.problems import Problem


def table_answer(
    fields: Mapping[str, object],
    *,
    packed: bool,
    headers: Iterable[RawHeader] = (),
    status: HTTPStatus = HTTPStatus.OK,
) -> Answer:
    """Names and values, in the format of the request."""
    if packed:
        return Answer(status, as_msgpack(fields), media_type=MSGPACK, headers=headers)
    return Answer(status, orjson.dumps(fields), media_type=JSON, headers=headers)


def is_packed(call: Call) -> bool:
    """Whether the body is msgpack; JSON otherwise; raises as ``is_msgpack`` does."""
    return is_msgpack(call.header(b"content-type"))


def accepted(call: Call, offered: Iterable[str]) -> str:
    """Which of the media types offered the client prefers; the first one if it does not say.

    Raises:
        Problem: none of them is acceptable (406).
    """
    text = call.header(b"accept")
    offers = tuple(offered)
    if text is None or not text.strip():
        return offers[0]
    best, best_rank = "", (0.0, 0)
    wishes = [_wish(part) for part in text.split(",")]
    for offer in offers:
        kind = offer.partition("/")[0]
        ranks = [(weight, len(name)) for name, weight in wishes if name in (offer, f"{kind}/*", "*/*")]
        # Of what names an offer, the most exact decides.
        rank = max(ranks, key=lambda each: each[1], default=(0.0, 0))
        if rank[0] > 0.0 and rank > best_rank:
            best, best_rank = offer, rank
    if not best:
        raise Problem(HTTPStatus.NOT_ACCEPTABLE, f"Accept: there is {', '.join(offers)}")
    return best


def _wish(part: str) -> tuple[str, float]:
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
