"""Answers of more than one call."""

from collections.abc import Mapping

import msgpack
import orjson
from starlette.responses import Response

from shale.service.bodies import JSON, MSGPACK


def table_answer(fields: Mapping[str, object], *, packed: bool, headers: dict[str, str] | None = None) -> Response:
    """Names and values, in the format of the request."""
    if packed:
        return Response(msgpack.packb(fields), headers=headers, media_type=MSGPACK)
    return Response(orjson.dumps(fields), headers=headers, media_type=JSON)
