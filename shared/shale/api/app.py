"""The ASGI application of the data port: routes, who may call, and when no new work is taken.

Routing looks at the raw path, because a key may hold any bytes.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from http import HTTPStatus
from typing import NamedTuple

import structlog
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from shale.api.fields import KV_PREFIX
from shale.api.openapi import document
from shale.api.settings import HttpSection
from shale.env import Env
from shale.errors import ShaleError
from shale.service.admin import json_response
from shale.service.bearer import Bearer
from shale.service.problems import Problem, bad_request, busy, problem_of, response
from shale.telemetry.metrics import Metrics

REQUEST_ID_MAX = 128
_OURS = HTTPStatus.INTERNAL_SERVER_ERROR

Handler = Callable[[Request], Awaitable[Response]]


class Route(NamedTuple):
    """The methods of one path: ``kv`` is everything below ``/v1/kv/``, any other name is ``/v1/name``."""

    name: str
    methods: Mapping[str, Handler]


class Api:
    """The network interface on one open database; routes of one name are put together.

    ``draining``: refuse new work.
    """

    def __init__(self, routes: Iterable[Route], http: HttpSection, metrics: Metrics, env: Env) -> None:
        self.draining = False
        self._clock = env.clock
        self._ids = env.ids
        self._bearer = Bearer(http.bearer_token)
        self._free = http.max_concurrent_requests
        self._inflight = metrics.gauge("shale_http_requests_inflight")
        by_name = {"openapi": Route("openapi", {"GET": _serve_openapi})}
        for route in routes:
            known = by_name.get(route.name, Route(route.name, {}))
            by_name[route.name] = Route(route.name, {**known.methods, **route.methods})
        self._kv = by_name.pop("kv")
        self._routes = {_path(name): route for name, route in by_name.items()}
        self._observed = {
            route.name: (
                metrics.histogram("shale_http_request_duration_seconds", route=route.name),
                {
                    status: metrics.counter("shale_http_requests_total", route=route.name, status=status)
                    for status in ("2xx", "3xx", "4xx", "5xx")
                },
            )
            for route in (self._kv, *self._routes.values(), _NOWHERE)
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        assert scope["type"] == "http"
        route = self._kv if scope["raw_path"].startswith(KV_PREFIX) else self._routes.get(scope["raw_path"], _NOWHERE)
        seconds, by_status = self._observed[route.name]
        start_s = self._clock.monotonic_s()
        self._free -= 1
        self._inflight.inc()
        try:
            request = Request(scope, receive)
            request_id = _request_id(request) or str(self._ids.ulid())
            structlog.contextvars.bind_contextvars(request_id=request_id)
            failure: Exception | None = None
            try:
                answer = await self._answer(route, request)
            except ClientDisconnect:
                return
            except Exception as error:  # noqa: BLE001 - the edge: a client gets a problem document, the server the error
                answer, failure = (
                    response(Problem(_OURS, "a mistake of the server; see its log", kind="internal")),
                    error,
                )
            answer.headers["X-Request-Id"] = request_id
            by_status[f"{answer.status_code // 100}xx"].inc()
            await answer(scope, receive, send)
            if failure is not None:
                raise failure
        except ClientDisconnect:
            return
        finally:
            self._free += 1
            self._inflight.dec()
            seconds.observe(self._clock.monotonic_s() - start_s)

    async def _answer(self, route: Route, request: Request) -> Response:
        try:
            return await self._admit(route, request)(request)
        except Problem as problem:
            return response(problem)
        except ShaleError as error:
            return response(problem_of(error))

    def _admit(self, route: Route, request: Request) -> Handler:
        self._bearer.require(request)
        if not route.methods:
            raise Problem(HTTPStatus.NOT_FOUND, "there is no such call; see /openapi.json")
        handler = route.methods.get(request.method)
        if handler is None:
            allowed = {"Allow": ", ".join(route.methods)}
            raise Problem(
                HTTPStatus.METHOD_NOT_ALLOWED, f"{request.method} is not a method of this call", headers=allowed
            )
        if request.scope["query_string"]:
            raise bad_request("no call takes a query; options are headers or fields of the body, see /openapi.json")
        if self.draining:
            problem = busy("the process is stopping")
            problem.headers["Connection"] = "close"
            raise problem
        if self._free < 0:
            raise busy("too many requests at once", status=HTTPStatus.TOO_MANY_REQUESTS)
        return handler


def _request_id(request: Request) -> str:
    """What the client calls this request, if it is fit for a log line."""
    given = request.headers.get("x-request-id", "")
    return given if len(given) <= REQUEST_ID_MAX and given.isprintable() and given.isascii() else ""


def _path(name: str) -> bytes:
    return b"/openapi.json" if name == "openapi" else f"/v1/{name}".encode()


async def _serve_openapi(request: Request) -> Response:  # noqa: ARG001 - the signature of a handler
    return json_response(document())


_NOWHERE = Route("none", {})
