"""Compactions by hand over HTTP, on the admin port (docs/operations.md 15)."""

from collections.abc import Awaitable, Callable
from http import HTTPStatus

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from shale.admin.compaction_json import compaction_json
from shale.admin.compactions import CompactionAdmin, ulid_of
from shale.compaction.cancel import TooLateToCancel
from shale.compaction.requests import parse_request
from shale.compaction.status import CompactionInfo
from shale.errors import InvalidCompaction, InvalidDbState, ShaleError
from shale.service.admin import json_response
from shale.service.bodies import BodyBudget, is_msgpack
from shale.service.problems import Problem, bad_request, problem_of, response

PATH = "/v1/admin/compactions"
SCHEMA_VERSION = 1
BODY_MAX_BYTES = 256 * 1024
BODIES_MAX_BYTES = 4 * BODY_MAX_BYTES
SILENCE_MAX_S = 10.0
_COMPETING = ("V9", "V12")
"""Rules that hold again once another compaction has ended: a conflict, where the others are mistakes."""

Handler = Callable[[Request], Awaitable[Response]]


class CompactionsApi:
    """The calls below ``/v1/admin/compactions``.

    Args:
        changed: called after every request that changed something, so that the coordinator looks at once.
    """

    def __init__(self, admin: CompactionAdmin, changed: Callable[[], None]) -> None:
        self._admin = admin
        self._changed = changed
        self._budget = BodyBudget(BODIES_MAX_BYTES, BODY_MAX_BYTES, silence_max_s=SILENCE_MAX_S)

    def routes(self) -> list[Route]:
        """What to add to the admin port."""
        one = f"{PATH}/{{compaction_id}}"
        return [
            Route(PATH, _answering(self._list), methods=["GET"]),
            Route(PATH, _answering(self._submit), methods=["POST"]),
            Route(one, _answering(self._status), methods=["GET"]),
            Route(f"{one}/cancel", _answering(self._cancel), methods=["POST"]),
        ]

    async def _list(self, request: Request) -> Response:
        all_retained = _flag(request, "all")
        return _several(await self._admin.list(all_retained=all_retained), HTTPStatus.OK)

    async def _submit(self, request: Request) -> Response:
        dry_run = _flag(request, "dry_run")
        if is_msgpack(request.headers.get("content-type")):
            raise Problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send application/json")
        with await self._budget.read(request.receive) as body:
            try:
                wanted = parse_request(orjson.loads(body.data))
            except orjson.JSONDecodeError as error:
                raise bad_request(f"the body is not JSON: {error}") from error
        infos = await self._admin.submit(wanted, dry_run=dry_run)
        if dry_run or not infos:
            return _several(infos, HTTPStatus.OK)
        self._changed()
        answer = _several(infos, HTTPStatus.ACCEPTED)
        if len(infos) == 1:
            answer.headers["Location"] = f"{PATH}/{infos[0].id}"
        return answer

    async def _status(self, request: Request) -> Response:
        _no_query(request)
        return _one(await self._admin.status(ulid_of(request.path_params["compaction_id"])))

    async def _cancel(self, request: Request) -> Response:
        _no_query(request)
        info = await self._admin.cancel(ulid_of(request.path_params["compaction_id"]))
        self._changed()
        return _one(info)


def _answering(handler: Handler) -> Handler:
    """The handler, with errors as problem documents."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except Problem as problem:
            return response(problem)
        except ShaleError as error:
            return response(_problem_of(error))
        except ClientDisconnect:
            return Response(status_code=HTTPStatus.BAD_REQUEST.value)  # nobody is there to read it

    return answer


def _problem_of(error: ShaleError) -> Problem:
    match error:
        case InvalidCompaction():
            status = HTTPStatus.CONFLICT if error.rule in _COMPETING else HTTPStatus.UNPROCESSABLE_ENTITY
            return Problem(status, str(error), kind=error.kind.value, fields={"rule": error.rule})
        case TooLateToCancel() | InvalidDbState():
            return Problem(HTTPStatus.CONFLICT, str(error), kind=error.kind.value)
        case _:
            return problem_of(error)


def _flag(request: Request, name: str) -> bool:
    """A query that is ``true`` or ``false``; any other query is refused, so that no misspelt wish is lost."""
    for given, value in request.query_params.multi_items():
        if given != name or value not in ("true", "false"):
            raise bad_request(f"?{given}={value}: the only query of this call is {name}=true or {name}=false")
    if len(request.query_params.multi_items()) > 1:
        raise bad_request(f"?{name}=: once is enough")
    return request.query_params.get(name) == "true"


def _no_query(request: Request) -> None:
    if request.query_params:
        raise bad_request("this call takes no query")


def _one(info: CompactionInfo) -> Response:
    return json_response({"schema_version": SCHEMA_VERSION, **compaction_json(info)})


def _several(infos: tuple[CompactionInfo, ...], status: HTTPStatus) -> Response:
    content = {"schema_version": SCHEMA_VERSION, "compactions": [compaction_json(info) for info in infos]}
    return json_response(content, status=status.value)
