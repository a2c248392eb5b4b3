"""Collecting by hand over HTTP, on the admin port (docs/garbage.md)."""

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from shale.admin.garbage import GarbageAdmin
from shale.admin.place import AdminPlace
from shale.engine.where import Stores
from shale.garbage.collector import Collector, TaskState
from shale.garbage.options import Task
from shale.service.admin import json_response
from shale.service.admin_calls import SCHEMA_VERSION, answering, body_budget, json_fields, no_query
from shale.service.problems import Problem, bad_request
from shale.telemetry.metrics import Metrics
from shale_gc.fleet import Fleet

PATH = "/v1/admin/gc"


class GcCalls:
    """``GET`` tells how every task is doing, ``POST`` starts passes, ``POST …/plan`` says what they would delete."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._budget = body_budget()

    def routes(self) -> list[Route]:
        """What to add to the admin port."""
        return [
            Route(PATH, answering(self._status), methods=["GET"]),
            Route(PATH, answering(self._start), methods=["POST"]),
            Route(f"{PATH}/plan", answering(self._plan), methods=["POST"]),
        ]

    async def _status(self, request: Request) -> Response:
        no_query(request)
        return self._told(HTTPStatus.OK)

    async def _start(self, request: Request) -> Response:
        no_query(request)
        given = await json_fields(request, self._budget, {"database", "resources"})
        tasks = _tasks(given)
        chosen = tuple(self._chosen(given))
        for task in tasks or ():
            if not any(task in collector.states for _, collector in chosen):
                raise bad_request(f"{task} is off here")
        for _, collector in chosen:
            collector.hurry(tasks)
        return self._told(HTTPStatus.ACCEPTED)

    async def _plan(self, request: Request) -> Response:
        no_query(request)
        given = await json_fields(request, self._budget, {"database", "resources", "min_age"})
        chosen = tuple(self._chosen(given))
        if len(chosen) != 1:
            raise bad_request('a plan is of one database: name it, {"database": "path"}')
        ((root, collector),) = chosen
        database = collector.database
        stores = Stores(database.store, database.wal_store if database.has_own_wal_store else None, ())
        place = AdminPlace.of(stores, root, database.env, Metrics(), component="gc")
        plan = await GarbageAdmin(place).plan(_tasks(given), min_age=given.get("min_age"))
        return json_response(plan.as_json())

    def _chosen(self, given: dict[str, Any]) -> Iterator[tuple[str, Collector]]:
        wanted = given.get("database")
        if wanted is not None and not isinstance(wanted, str):
            raise bad_request("database is a path")
        if wanted is not None and wanted not in self._fleet.collectors:
            raise Problem(HTTPStatus.NOT_FOUND, f"{wanted!r} is not collected here")
        return ((root, collector) for root, collector in self._fleet if wanted in (None, root))

    def _told(self, status: HTTPStatus) -> Response:
        databases = [{"database": root, "tasks": tasks_json(collector)} for root, collector in self._fleet]
        told = {"schema_version": SCHEMA_VERSION, "databases": databases, "waiting": self._fleet.waiting}
        return json_response(told, status=status.value)


def tasks_json(collector: Collector) -> dict[str, Any]:
    """How the tasks of one database are doing."""
    return {task.value: _state_json(state) for task, state in collector.states.items()}


def _state_json(state: TaskState) -> dict[str, Any]:
    progress = state.progress
    return {
        "running": state.is_running,
        "last_success_ms": state.last_success_ms,
        "last_error": state.last_error,
        "listed": progress.listed,
        "planned": progress.planned,
        "deleted": progress.deleted,
        "deleted_bytes": progress.deleted_bytes,
        "failed": progress.failed,
    }


def _tasks(given: dict[str, Any]) -> list[Task] | None:
    names = given.get("resources")
    if names is None:
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise bad_request("resources is a list of names")
    return [Task.named(name) for name in names]
