"""The ASGI application of the data port: routing, authentication and admission.

Routing uses the raw path, because a key may contain any bytes.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import Any, NamedTuple

import anyio
import structlog
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from shale.api.abandoned_requests import answer_if_connected
from shale.api.fields import KV_PREFIX
from shale.api.messages import Request, Response
from shale.api.openapi import document
from shale.api.settings import HttpSection
from shale.env import Env
from shale.errors import ShaleError
from shale.service.access import AccessTokens, Quota, Role
from shale.service.http.bearer import BearerAuth, use_quota
from shale.service.http.documents import JSON
from shale.service.http.problems import Problem, busy, problem_from, response
from shale.service.http.request_id import safe_request_id
from shale.service.http.request_trace import RequestTrace, begin, record_failure
from shale.service.http.server_url import server_url
from shale.service.process import NO_SERVICES, PortServices
from shale.telemetry.instruments import Counter
from shale.telemetry.metrics import Metrics

SNAPSHOT_PREFIX = b"/v1/snapshots/"
_BATCH_OF_IDS = 1 << 20
MEMORY_IS_FULL = "the process holds as much memory as it may (memory.limit); try again later"
_OTHER_METHODS = ""
"""Those that a path does not have; they are refused."""

Handler = Callable[[Request], Awaitable[Any]]
"""Handles a request; returns an ASGI application with a ``status_code`` and ``raw_headers``."""


Background = Callable[[], Coroutine[Any, Any, None]]


class Route(NamedTuple):
    """The methods of ``/v1/name``; ``kv`` and ``snapshot`` match all paths below ``/v1/kv/`` and ``/v1/snapshots/``.

    ``role``: what a token needs for these methods, if the port requires tokens.
    """

    name: str
    methods: Mapping[str, Handler]
    role: Role = Role.READ


class _Path(NamedTuple):
    """The methods of one path, merged from all routes with its name."""

    name: str
    methods: dict[str, tuple[Handler, Role]]


class Api:
    """The HTTP API of one open database.  Routes with the same name are merged.

    While ``draining`` is set, new requests get a 503.  ``quotas``: those of the tokens, if any.  ``memory``: of all
    ports.
    """

    def __init__(
        self,
        routes: Iterable[Route],
        http: HttpSection,
        metrics: Metrics,
        env: Env,
        *,
        background: Iterable[Background] = (),
        services: PortServices = NO_SERVICES,
    ) -> None:
        self.draining = False
        self._background = tuple(background)
        self._monotonic_s = env.clock.monotonic_s
        self._request_ids = _RequestIds(env)
        tokens = _own_token(http) if services.tokens is None else services.tokens
        self._bearer = BearerAuth(tokens)
        self.quotas = tokens.quotas
        self.memory = services.memory
        self._free = http.max_concurrent_requests
        self._free_min = http.max_concurrent_requests * 3 // 4
        """With fewer free places a read ends if its client has gone; to watch each one would cost too much."""
        inflight = metrics.gauge("shale_http_requests_inflight")
        metrics.before_scrape(lambda: inflight.set(http.max_concurrent_requests - self._free))
        by_name: dict[str, _Path] = {}
        for name, methods, role in (*routes, Route("openapi", {"GET": self._serve_openapi})):
            path = by_name.setdefault(name, _Path(name, {}))
            path.methods.update({method: (handler, role) for method, handler in methods.items()})
            if "GET" in methods:  # the server sends no body in answer to HEAD
                path.methods.setdefault("HEAD", path.methods["GET"])
        self._names = frozenset(by_name)
        self._kv = by_name.get("kv", _UNKNOWN_ROUTE)
        self._snapshot = by_name.get("snapshot", _UNKNOWN_ROUTE)
        self._routes = {_path(name): route for name, route in by_name.items() if name not in ("kv", "snapshot")}
        self._seconds = {
            name: metrics.histogram("shale_http_request_duration_seconds", route=name)
            for name in (*by_name, _UNKNOWN_ROUTE.name)
        }
        self._answers = {path.name: _counters(path, metrics) for path in (*by_name.values(), _UNKNOWN_ROUTE)}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the background tasks of the routes until the block ends."""
        async with anyio.create_task_group() as tasks:
            for work in self._background:
                tasks.start_soon(work, name="http.background")
            yield
            tasks.cancel_scope.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        assert scope["type"] == "http"
        call = Request(scope, receive)
        route = self._route(call.path)
        trace = begin(route.name, call)
        if trace is None:
            await self._handle(call, route, send)
        else:
            with trace:
                await self._handle(call, route, send, trace)

    async def _handle(self, call: Request, route: _Path, send: Send, trace: RequestTrace | None = None) -> None:
        seconds, answers = self._seconds[route.name], self._answers[route.name]
        start_s = self._monotonic_s()
        self._free -= 1
        try:
            request_id = safe_request_id(call.header(b"x-request-id")) or next(self._request_ids)
            structlog.contextvars.bind_contextvars(request_id=request_id)
            failure: Exception | None = None
            try:
                answer = await self._answer(route, call)
            except ClientDisconnect:
                return
            except Exception as error:  # noqa: BLE001 - the outermost handler: the client gets a problem document, the log gets the error
                answer, failure = (
                    response(
                        Problem(
                            HTTPStatus.INTERNAL_SERVER_ERROR,
                            "internal server error; see the server's log",
                            kind="internal",
                        )
                    ),
                    error,
                )
            answer.raw_headers.append((b"x-request-id", request_id.encode("ascii")))
            answers.get(call.method, answers[_OTHER_METHODS])[answer.status_code // 100].inc()
            if trace is not None:
                trace.answered(answer.status_code)
            elif answer.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
                record_failure(route.name, call, answer.status_code, self._monotonic_s() - start_s)
            await answer(call.scope, call.receive, send)
            if failure is not None:
                raise failure
        except ClientDisconnect:
            return
        finally:
            self._free += 1
            if trace is None:
                seconds.observe(self._monotonic_s() - start_s)
            else:
                seconds.observe_traced(self._monotonic_s() - start_s, trace.trace_id)

    def _route(self, path: bytes) -> _Path:
        if path.startswith(KV_PREFIX):
            return self._kv
        if path.startswith(SNAPSHOT_PREFIX):
            return self._snapshot
        return self._routes.get(path, _UNKNOWN_ROUTE)

    async def _answer(self, route: _Path, call: Request) -> Any:
        try:
            return await self._admit(route, call)(call)
        except Problem as problem:
            return response(problem)
        except ShaleError as error:
            return response(problem_from(error))

    def _admit(self, route: _Path, call: Request) -> Handler:
        handler, role = route.methods.get(call.method, (None, Role.READ))
        self._bearer.require(call.headers, role, call.scope)
        if not route.methods:
            raise Problem(HTTPStatus.NOT_FOUND, "no such path; see /openapi.json")
        if handler is None:
            allowed = {"Allow": ", ".join(sorted(route.methods))}
            raise Problem(HTTPStatus.METHOD_NOT_ALLOWED, f"{call.method} is not allowed on this path", headers=allowed)
        if self.draining:
            problem = busy("the process is stopping")
            problem.headers["Connection"] = "close"
            raise problem
        if self._free < 0:
            raise busy("too many requests at once", status=HTTPStatus.TOO_MANY_REQUESTS)
        if self.memory.account.is_full and role is Role.WRITE:
            self.memory.account.refuse()
            raise busy(MEMORY_IS_FULL, status=HTTPStatus.TOO_MANY_REQUESTS)
        if self.quotas is not None and self.quotas.is_limiting:
            self._use_quota(call, self.quotas.of(*self._bearer.caller(call.header(b"authorization"), role)))
        if role is Role.READ and self._free < self._free_min:
            return partial(answer_if_connected, handler)
        return handler

    def _use_quota(self, call: Request, quota: Quota) -> None:
        """Count a request, and its body while it is received.

        Raises:
            Problem: the quota of the caller is used up (429).
        """
        use_quota(quota)
        receive = call.receive

        async def receive_and_count() -> Message:
            message = await receive()
            quota.take_bytes(len(message.get("body", b"")))
            return message

        call.receive = receive_and_count

    async def _serve_openapi(self, call: Request) -> Response:
        call.query()
        described = document(self._names, server_url(call.scope))
        return Response(HTTPStatus.OK, described, media_type=JSON, headers=[(b"cache-control", b"no-store")])


def _counters(path: _Path, metrics: Metrics) -> dict[str, dict[int, Counter]]:
    """Return the counters of answers by method and by the first digit of the status."""
    roles = {_OTHER_METHODS: Role.READ, **{method: role for method, (_, role) in path.methods.items()}}
    return {
        method: {
            status: metrics.counter(
                "shale_http_requests_total",
                route=path.name,
                category="read" if role is Role.READ else "write",
                status=f"{status}xx",
            )
            for status in (2, 3, 4, 5)
        }
        for method, role in roles.items()
    }


class _RequestIds:
    """Generates request ids: the prefix of a ULID and a counter.

    A new ULID for each request would cost more than the request itself.
    """

    def __init__(self, env: Env) -> None:
        self._ids = env.ids
        self._left = 0
        self._prefix = ""

    def __next__(self) -> str:
        if self._left == 0:
            self._prefix = str(self._ids.ulid())[:-5]
            self._left = _BATCH_OF_IDS
        self._left -= 1
        return f"{self._prefix}{self._left:05X}"


def _path(name: str) -> bytes:
    return b"/openapi.json" if name == "openapi" else f"/v1/{name}".encode()


def _own_token(http: HttpSection) -> AccessTokens:
    """Return the token of the port, for callers that know no others."""
    return AccessTokens([] if http.bearer_token is None else [(http.bearer_token, Role.WRITE)])


_UNKNOWN_ROUTE = _Path("none", {})
