"""HTTP API of compactions on the admin port (docs/how-to/compact-manually.md)."""

from collections.abc import Callable
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from shale.admin.compactions import CompactionAdmin, NotFailed, ulid_of
from shale.admin.json_values import compaction_json
from shale.compaction.cancel import TooLateToCancel
from shale.compaction.requests import parse_request
from shale.compaction.status import CompactionInfo
from shale.errors import InvalidCompaction, ShaleError
from shale.service.admin import json_response
from shale.service.admin_calls import (
    SCHEMA_VERSION,
    admin_problem_from,
    body_budget,
    flag,
    json_value,
    no_query,
    with_problem_responses,
)
from shale.service.http.problems import Problem

PATH = "/v1/admin/compactions"
_COMPETING = ("V9", "V12")
"""Rules that another active compaction breaks: a temporary conflict, not a malformed request."""


class CompactionsApi:
    """The endpoints below ``/v1/admin/compactions``.

    Args:
        changed: called after each request that changed the compactions, to wake the coordinator.
    """

    def __init__(self, admin: CompactionAdmin, changed: Callable[[], None]) -> None:
        self._admin = admin
        self._changed = changed
        self._budget = body_budget()

    def routes(self) -> list[Route]:
        """Return the routes to add to the admin port."""
        one = f"{PATH}/{{compaction_id}}"
        return [
            Route(PATH, with_problem_responses(self._list, _problem_of), methods=["GET"]),
            Route(PATH, with_problem_responses(self._submit, _problem_of), methods=["POST"]),
            Route(one, with_problem_responses(self._status, _problem_of), methods=["GET"]),
            Route(f"{one}/cancel", with_problem_responses(self._cancel, _problem_of), methods=["POST"]),
            Route(f"{one}/retry", with_problem_responses(self._retry, _problem_of), methods=["POST"]),
        ]

    async def _list(self, request: Request) -> Response:
        all_retained = flag(request, "all")
        return _several(await self._admin.list(all_retained=all_retained), HTTPStatus.OK)

    async def _submit(self, request: Request) -> Response:
        dry_run = flag(request, "dry_run")
        wanted = parse_request(await json_value(request, self._budget))
        infos = await self._admin.submit(wanted, dry_run=dry_run)
        if dry_run or not infos:
            return _several(infos, HTTPStatus.OK)
        self._changed()
        answer = _several(infos, HTTPStatus.ACCEPTED)
        if len(infos) == 1:
            answer.headers["Location"] = f"{PATH}/{infos[0].id}"
        return answer

    async def _status(self, request: Request) -> Response:
        no_query(request)
        return _one(await self._admin.status(ulid_of(request.path_params["compaction_id"])))

    async def _cancel(self, request: Request) -> Response:
        no_query(request)
        info = await self._admin.cancel(ulid_of(request.path_params["compaction_id"]))
        self._changed()
        return _one(info)

    async def _retry(self, request: Request) -> Response:
        no_query(request)
        info = await self._admin.retry(ulid_of(request.path_params["compaction_id"]))
        self._changed()
        answer = _several((info,), HTTPStatus.ACCEPTED)
        answer.headers["Location"] = f"{PATH}/{info.id}"
        return answer


def _problem_of(error: ShaleError) -> Problem:
    match error:
        case InvalidCompaction():
            status = HTTPStatus.CONFLICT if error.rule in _COMPETING else HTTPStatus.UNPROCESSABLE_ENTITY
            return Problem(status, str(error), kind=error.kind.value, fields={"rule": error.rule})
        case TooLateToCancel() | NotFailed():
            return Problem(HTTPStatus.CONFLICT, str(error), kind=error.kind.value)
        case _:
            return admin_problem_from(error)


def _one(info: CompactionInfo) -> Response:
    return json_response({"schema_version": SCHEMA_VERSION, **compaction_json(info)})


def _several(infos: tuple[CompactionInfo, ...], status: HTTPStatus) -> Response:
    content = {"schema_version": SCHEMA_VERSION, "compactions": [compaction_json(info) for info in infos]}
    return json_response(content, status=status.value)
