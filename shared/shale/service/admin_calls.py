"""What calls of the admin port have in common: errors as problem documents, strict queries, small JSON bodies."""

from collections.abc import Awaitable, Callable, Collection
from http import HTTPStatus
from typing import Any

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from shale.errors import InvalidDbState, ShaleError, UnknownCheckpoint
from shale.service.bodies import BodyBudget, is_msgpack
from shale.service.problems import Problem, bad_request, problem_of, response

SCHEMA_VERSION = 1
BODY_MAX_BYTES = 256 * 1024
BODIES_MAX_BYTES = 4 * BODY_MAX_BYTES
SILENCE_MAX_S = 10.0
BODY_MAX_S = 60.0

Handler = Callable[[Request], Awaitable[Response]]
Translation = Callable[[ShaleError], Problem]


def admin_problem_of(error: ShaleError) -> Problem:
    """As ``problem_of``; a database that is in no state for the call is a conflict and no mistake of the caller's."""
    if isinstance(error, InvalidDbState) and not isinstance(error, UnknownCheckpoint):
        return Problem(HTTPStatus.CONFLICT, str(error), kind=error.kind.value)
    return problem_of(error)


def answering(handler: Handler, translate: Translation = admin_problem_of) -> Handler:
    """The handler, with errors as problem documents."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except Problem as problem:
            return response(problem)
        except ShaleError as error:
            return response(translate(error))
        except ClientDisconnect:
            return Response(status_code=HTTPStatus.BAD_REQUEST.value)  # nobody is there to read it

    return answer


def flag(request: Request, name: str) -> bool:
    """A query that is ``true`` or ``false``; any other query is refused, so that no misspelt wish is lost."""
    for given, value in request.query_params.multi_items():
        if given != name or value not in ("true", "false"):
            raise bad_request(f"?{given}={value}: the only query of this call is {name}=true or {name}=false")
    return one_query(request, name) == "true"


def one_query(request: Request, name: str) -> str | None:
    """The only query of a call; ``None`` if it was not given."""
    for given, value in request.query_params.multi_items():
        if given != name:
            raise bad_request(f"?{given}={value}: the only query of this call is {name}")
    if len(request.query_params.multi_items()) > 1:
        raise bad_request(f"?{name}=: once is enough")
    return request.query_params.get(name)


def no_query(request: Request) -> None:
    """Refuse queries, so that no wish is lost."""
    if request.query_params:
        raise bad_request("this call takes no query")


def body_budget() -> BodyBudget:
    """Memory for the bodies of one part of the port."""
    return BodyBudget(BODIES_MAX_BYTES, BODY_MAX_BYTES, silence_max_s=SILENCE_MAX_S, time_max_s=BODY_MAX_S)


async def json_value(request: Request, budget: BodyBudget) -> Any:
    """The body of a request.

    Raises:
        Problem: it is no JSON, or says that it is something else, or is too large.
    """
    if is_msgpack(request.headers.get("content-type")):
        raise Problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send application/json")
    with await budget.read(request.receive) as body:
        try:
            return orjson.loads(body.data) if body.data else None
        except orjson.JSONDecodeError as error:
            raise bad_request(f"the body is not JSON: {error}") from error


async def json_fields(request: Request, budget: BodyBudget, names: Collection[str]) -> dict[str, Any]:
    """The body as a table of names and values, none of them unknown; an empty body is an empty table.

    Raises:
        Problem: it is something else.
    """
    value = await json_value(request, budget)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise bad_request("the body is not a table of names and values")
    unknown = sorted(set(value) - set(names))
    if unknown:
        raise bad_request(f"{unknown[0]}: no such name; known are {', '.join(sorted(names))}")
    return value
