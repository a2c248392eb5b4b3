"""HTTP API of GC on the admin port (docs/how-to/gc.md)."""

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from shale.admin.context import AdminContext
from shale.admin.gc import GcAdmin
from shale.engine.location import DatabaseStores
from shale.gc.collector import Collector, TaskState
from shale.gc.options import Task
from shale.service.admin import json_response
from shale.service.admin_calls import SCHEMA_VERSION, body_budget, json_fields, no_query, with_problem_responses
from shale.service.http.problems import Problem, bad_request
from shale.telemetry.metrics import Metrics
from shale_gc.collector_pool import CollectorPool

PATH = "/v1/admin/gc"


class GcApi:
    """``GET`` returns the states of the tasks, ``POST`` starts passes, ``POST …/plan`` returns their plan."""

    def __init__(self, pool: CollectorPool) -> None:
        self._pool = pool
        self._budget = body_budget()

    def routes(self) -> list[Route]:
        """Return the routes to add to the admin port."""
        return [
            Route(PATH, with_problem_responses(self._status), methods=["GET"]),
            Route(PATH, with_problem_responses(self._start), methods=["POST"]),
            Route(f"{PATH}/plan", with_problem_responses(self._plan), methods=["POST"]),
        ]

    async def _status(self, request: Request) -> Response:
        no_query(request)
        return self._status_response(HTTPStatus.OK)

    async def _start(self, request: Request) -> Response:
        no_query(request)
        given = await json_fields(request, self._budget, {"database", "resources"})
        tasks = _tasks(given)
        chosen = tuple(self._chosen(given))
        for task in tasks or ():
            if not any(task in collector.states for _, collector in chosen):
                raise bad_request(f"{task} is off here")
        for _, collector in chosen:
            collector.trigger(tasks)
        return self._status_response(HTTPStatus.ACCEPTED)

    async def _plan(self, request: Request) -> Response:
        no_query(request)
        given = await json_fields(request, self._budget, {"database", "resources", "min_age"})
        chosen = tuple(self._chosen(given))
        if len(chosen) != 1:
            raise bad_request('a plan is of one database: name it, {"database": "path"}')
        ((root, collector),) = chosen
        database = collector.database
        wal_store = database.wal_store if database.has_own_wal_store else None
        stores = DatabaseStores(database.store, wal_store, (), database.protocol.manifest_write_version)
        place = AdminContext.of(stores, root, database.env, Metrics(), component="gc")
        plan = await GcAdmin(place).plan(_tasks(given), min_age=given.get("min_age"))
        return json_response(plan.as_json())

    def _chosen(self, given: dict[str, Any]) -> Iterator[tuple[str, Collector]]:
        wanted = given.get("database")
        if wanted is not None and not isinstance(wanted, str):
            raise bad_request("database is a path")
        if wanted is not None and wanted not in self._pool.collectors:
            raise Problem(HTTPStatus.NOT_FOUND, f"{wanted!r} is not collected here")
        return ((root, collector) for root, collector in self._pool if wanted in (None, root))

    def _status_response(self, status: HTTPStatus) -> Response:
        databases = [{"database": root, "tasks": tasks_json(collector)} for root, collector in self._pool]
        body = {"schema_version": SCHEMA_VERSION, "databases": databases, "waiting": self._pool.waiting}
        return json_response(body, status=status.value)


def tasks_json(collector: Collector) -> dict[str, Any]:
    """Return the state of the tasks of one database."""
    return {task.value: _state_json(state) for task, state in collector.states.items()}


_COUNTS = ("listed", "planned", "deleted", "deleted_bytes", "failed")


def _state_json(state: TaskState) -> dict[str, Any]:
    counts = {name: getattr(state.progress, name) for name in _COUNTS}
    return {
        "running": state.is_running,
        "last_success_ms": state.last_success_ms,
        "last_error": state.last_error,
        **counts,
    }


def _tasks(given: dict[str, Any]) -> list[Task] | None:
    names = given.get("resources")
    if names is None:
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise bad_request("resources is a list of names")
    return [Task.named(name) for name in names]
