"""Shared code of admin routes: problem documents, strict query parameters, small JSON bodies."""

from collections.abc import Awaitable, Callable, Collection
from http import HTTPStatus
from typing import Any

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from shale.errors import InvalidDbState, ShaleError, UnknownCheckpoint
from shale.service.http.bodies import BodyBudget, BodyPace
from shale.service.http.documents import is_msgpack
from shale.service.http.problems import Problem, bad_request, problem_from, response, too_large

SCHEMA_VERSION = 1
BODY_MAX_BYTES = 256 * 1024
BODIES_MAX_BYTES = 4 * BODY_MAX_BYTES
ELEMENTS_MAX = 16_384
"""An element takes up to 80 times its bytes once it is decoded."""
SILENCE_MAX_S = 10.0
BODY_MAX_S = 60.0

Handler = Callable[[Request], Awaitable[Response]]
Translation = Callable[[ShaleError], Problem]


def admin_problem_from(error: ShaleError) -> Problem:
    """Map an error like ``problem_from``, but answer 409 when the database is in the wrong state for the call."""
    if isinstance(error, InvalidDbState) and not isinstance(error, UnknownCheckpoint):
        return Problem(HTTPStatus.CONFLICT, str(error), kind=error.kind.value)
    return problem_from(error)


def with_problem_responses(handler: Handler, translate: Translation = admin_problem_from) -> Handler:
    """Wrap a handler so that its errors become problem documents."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except Problem as problem:
            return response(problem)
        except ShaleError as error:
            return response(translate(error))
        except ClientDisconnect:
            return Response(
                status_code=HTTPStatus.BAD_REQUEST.value
            )  # the client has disconnected and reads no response

    return answer


def flag(request: Request, name: str) -> bool:
    """Read one boolean query parameter; reject all others, so that no misspelled parameter is ignored."""
    for given, value in request.query_params.multi_items():
        if given != name or value not in ("true", "false"):
            raise bad_request(f"?{given}: the only query of this call is {name}=true or {name}=false")
    return one_query(request, name) == "true"


def one_query(request: Request, name: str) -> str | None:
    """Return the only query parameter of a call; ``None`` if it is absent."""
    for given, _ in request.query_params.multi_items():
        if given != name:
            raise bad_request(f"?{given}: the only query of this call is {name}")
    if len(request.query_params.multi_items()) > 1:
        raise bad_request(f"?{name}=: give it only once")
    return request.query_params.get(name)


def no_query(request: Request) -> None:
    """Reject every query parameter, so that none is ignored."""
    if request.query_params:
        raise bad_request("this call takes no query")


def body_budget() -> BodyBudget:
    """Return the memory budget for request bodies of one group of admin routes."""
    return BodyBudget(BODIES_MAX_BYTES, BODY_MAX_BYTES, BodyPace(SILENCE_MAX_S, BODY_MAX_S))


async def json_value(request: Request, budget: BodyBudget) -> Any:
    """Read a JSON request body.

    Raises:
        Problem: the body is not JSON, has another content type, or is too large.
    """
    if is_msgpack(request.headers.get("content-type")):
        raise Problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send application/json")
    with await budget.read(request.receive) as body:
        if sum(body.data.count(byte) for byte in b",:[{") > ELEMENTS_MAX:
            raise too_large(f"the body has more than {ELEMENTS_MAX} elements")
        try:
            return orjson.loads(body.data) if body.data else None
        except orjson.JSONDecodeError as error:
            raise bad_request(f"the body is not JSON: {error}") from error


async def json_fields(request: Request, budget: BodyBudget, names: Collection[str]) -> dict[str, Any]:
    """Read a JSON object whose field names are all known; an empty body is an empty object.

    Raises:
        Problem: the body is not such an object.
    """
    value = await json_value(request, budget)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise bad_request("the body is not an object of names and values")
    unknown = sorted(set(value) - set(names))
    if unknown:
        raise bad_request(f"{unknown[0]}: no such field; known fields: {', '.join(sorted(names))}")
    return value
