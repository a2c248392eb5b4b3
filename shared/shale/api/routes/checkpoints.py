"""Checkpoint routes on the admin port of the writer and of the garbage collector (docs/how-to/checkpoints.md).

The writer can checkpoint all accepted writes, the collector only the state of the latest manifest.  All other calls
are the same.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from shale.admin.checkpoints import CheckpointAdmin
from shale.admin.json_values import checkpoint_json
from shale.env import Env
from shale.service.admin import json_response
from shale.service.admin_calls import (
    SCHEMA_VERSION,
    body_budget,
    json_fields,
    no_query,
    one_query,
    with_problem_responses,
)
from shale.service.http.problems import bad_request
from shale.types import Checkpoint

if TYPE_CHECKING:
    from shale.engine.db import Db

PATH = "/v1/admin/checkpoints"


class CheckpointRoutes:
    """The routes below ``/v1/admin/checkpoints``.

    Args:
        admin: checkpoint administration of the database.
        db: the open database of a writer; ``None`` in other processes.
    """

    def __init__(self, admin: CheckpointAdmin, env: Env, db: "Db | None" = None) -> None:
        self._admin = admin
        self._env = env
        self._db = db
        self._budget = body_budget()
        self._names = {"lifetime", "name", "source", "id"} | ({"scope"} if db is not None else set())

    def routes(self) -> list[Route]:
        """Return the routes for the admin port."""
        one = f"{PATH}/{{checkpoint_id:path}}"  # a name may contain slashes
        return [
            Route(PATH, with_problem_responses(self._list), methods=["GET"]),
            Route(PATH, with_problem_responses(self._create), methods=["POST"]),
            Route(one, with_problem_responses(self._get), methods=["GET"]),
            Route(one, with_problem_responses(self._refresh), methods=["PATCH"]),
            Route(one, with_problem_responses(self._delete), methods=["DELETE"]),
        ]

    async def _list(self, request: Request) -> Response:
        found = await self._admin.list(one_query(request, "name"))
        now_ms = self._env.clock.now_ms()
        return json_response(
            {"schema_version": SCHEMA_VERSION, "checkpoints": [checkpoint_json(each, now_ms) for each in found]}
        )

    async def _create(self, request: Request) -> Response:
        no_query(request)
        given = await json_fields(request, self._budget, self._names)
        lifetime, name = _lifetime(given), _text(given, "name")
        source, wanted = _text(given, "source"), _text(given, "id")
        if self._db is None:
            made = await self._admin.create(lifetime, source, name, checkpoint_id=wanted)
        else:
            scope = _text(given, "scope") or "all"
            made = await self._db.checkpoint(
                name=name, lifetime=lifetime, scope=scope, source=source, checkpoint_id=wanted
            )
        answer = self._one(made, HTTPStatus.CREATED)
        answer.headers["Location"] = f"{PATH}/{made.id}"
        return answer

    async def _get(self, request: Request) -> Response:
        no_query(request)
        return self._one(await self._admin.get(request.path_params["checkpoint_id"]), HTTPStatus.OK)

    async def _refresh(self, request: Request) -> Response:
        no_query(request)
        given = await json_fields(request, self._budget, {"lifetime"})
        if "lifetime" not in given:
            raise bad_request("lifetime: required; a duration from now, or null for no expiry")
        made = await self._admin.refresh(request.path_params["checkpoint_id"], _lifetime(given))
        return self._one(made, HTTPStatus.OK)

    async def _delete(self, request: Request) -> Response:
        no_query(request)
        await self._admin.delete(request.path_params["checkpoint_id"])
        return Response(status_code=HTTPStatus.NO_CONTENT.value)

    def _one(self, checkpoint: Checkpoint, status: HTTPStatus) -> Response:
        now_ms = self._env.clock.now_ms()
        return json_response(
            {"schema_version": SCHEMA_VERSION, **checkpoint_json(checkpoint, now_ms)}, status=status.value
        )


def _lifetime(given: Mapping[str, Any]) -> str | float | None:
    lifetime = given.get("lifetime")
    if lifetime is None or (isinstance(lifetime, str | int | float) and not isinstance(lifetime, bool)):
        return lifetime
    raise bad_request("lifetime: must be a duration such as 7days, a number of seconds, or null for no expiry")


def _text(given: Mapping[str, Any], name: str) -> str | None:
    value = given.get(name)
    if value is None or isinstance(value, str):
        return value
    raise bad_request(f"{name}: must be text")
