"""The admin port: metrics, health, status and the log level (docs/how-to/monitor.md and docs/reference/health.md)."""

import platform
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

import orjson
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Receive, Scope, Send

from shale.env import Env, Ids
from shale.service.access import AccessTokens
from shale.service.admin_calls import body_budget, with_problem_responses
from shale.service.audit import AuditMiddleware
from shale.service.build import FORMATS, revision, version
from shale.service.health import Health, HealthReport
from shale.service.http.bearer import PROBED_PATHS, READING_METHODS, BearerAuthMiddleware
from shale.service.http.problems import Problem, bad_request, response
from shale.service.shutdown import FinalScrapes
from shale.telemetry.events import Event
from shale.telemetry.log import get_logger
from shale.telemetry.log_output import level_name, set_level
from shale.telemetry.metrics import Metrics
from shale.telemetry.metrics_page import MetricsPage

log = get_logger("admin")

PREFIX = "/v1/admin/"
NO_STORE = {"Cache-Control": "no-store"}
SERVED_TO_THE_END = PROBED_PATHS | {"/statusz"}
SCRAPE_HEADER = "X-Prometheus-Scrape-Timeout-Seconds"
"""Sent by Prometheus, its agents, and programs that scrape as it does; not by a person or a probe."""
LEVELS = ("debug", "info", "warning", "error", "critical")


class AdminApp:
    """The ASGI application of the admin port.

    ``tokens`` protect the paths below ``/v1/admin/``.  ``scrapes``: told of each one after the process has failed.
    """

    def __init__(
        self,
        health: Health,
        metrics: Metrics,
        tokens: AccessTokens | None = None,
        ids: Ids | None = None,
        scrapes: FinalScrapes | None = None,
    ) -> None:
        self.tokens = AccessTokens() if tokens is None else tokens
        self._health = health
        self._page = MetricsPage(metrics)
        self._scrapes = scrapes
        self._bodies = body_budget()
        self._app = Starlette(
            routes=[
                Route("/metrics", self._serve_metrics),
                Route("/livez", self._health_route(health.live)),
                Route("/readyz", self._health_route(health.ready)),
                Route("/startupz", self._health_route(health.startup)),
                Route("/statusz", self._serve_status),
                Route("/v1/admin/log-level", with_problem_responses(self._log_level), methods=["GET", "PUT"]),
            ],
            exception_handlers={HTTPException: self._not_served, Exception: _failed},
        )
        self._app.router.redirect_slashes = False  # a redirect leads to the host that the client has sent
        protected = BearerAuthMiddleware(self._serve, PREFIX, self.tokens)
        self.asgi = AuditMiddleware(protected, PREFIX, self.tokens, metrics, Env.system().ids if ids is None else ids)

    def add_route(self, route: BaseRoute) -> None:
        """Add a route, for example the writer's flush.

        Raises:
            ValueError: it may change something, and is outside the paths that need the role admin and are audited.
        """
        methods = getattr(route, "methods", None) or ()
        if not READING_METHODS.issuperset(methods) and not getattr(route, "path", "").startswith(PREFIX):
            raise ValueError(f"{route}: a route with {', '.join(sorted(methods))} must be below {PREFIX}")
        self._app.router.routes.append(route)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; a process that is about to exit answers only for its metrics and its health."""
        code = self._health.exit_code
        if code is not None and scope["type"] == "http" and scope["path"] not in SERVED_TO_THE_END:
            problem = Problem(HTTPStatus.SERVICE_UNAVAILABLE, f"this process has failed and exits with {code}")
            await response(problem)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    async def _serve_metrics(self, request: Request) -> Response:
        is_final = self._health.exit_code is not None and SCRAPE_HEADER in request.headers
        page, content_type = await self._page.encode(request.headers.get("accept", ""))
        # Recorded once the response is sent: the process may exit right after it.
        told = BackgroundTask(self._scrapes.record) if is_final and self._scrapes is not None else None
        headers = {**NO_STORE, "Content-Type": content_type}
        return Response(page, headers=headers, background=told)

    def _health_route(self, ask: Callable[[frozenset[str]], HealthReport]) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            report = ask(frozenset(request.query_params.getlist("exclude")))
            status = 200 if report.ok else 503
            if "verbose" not in request.query_params:
                return PlainTextResponse(f"{report.word}\n", status_code=status, headers=NO_STORE)
            checks = {
                name: {"ok": verdict.ok, "degraded": verdict.degraded, "message": verdict.message}
                for name, verdict in report.checks.items()
            }
            return json_response({"ok": report.ok, "status": report.word, "checks": checks}, status=status)

        return answer

    async def _serve_status(self, request: Request) -> Response:  # noqa: ARG002 - the signature of a route
        return json_response(self._health.status())

    async def _log_level(self, request: Request) -> Response:
        if request.method == "PUT":
            with await self._bodies.read(request.receive) as body:
                level = _level_of(body.data)
            if level not in LEVELS:
                raise bad_request('the body is {"level": …}, one of ' + ", ".join(LEVELS))
            set_level(level)
            log.info(Event.CONFIG_RELOADED, key="log.level", level_now=level)
        return json_response({"level": level_name()})

    async def _not_served(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        detail = f"{request.method} {request.url.path}: {error.detail.lower()} on the admin port of this process"
        headers = dict(error.headers or {})
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = ", ".join(self._methods_of(request.scope))
        return response(Problem(HTTPStatus(error.status_code), detail, headers=headers))

    def _methods_of(self, scope: Scope) -> list[str]:
        """Return the methods of a path: of all its routes, not only of the first one."""
        routes = [route for route in self._app.routes if route.matches(scope)[0] is not Match.NONE]
        return sorted({method for route in routes for method in getattr(route, "methods", None) or ()})


def json_response(content: Mapping[str, Any], *, status: int = 200) -> Response:
    """Return a JSON response that must not be cached."""
    return Response(orjson.dumps(content), status, headers=NO_STORE, media_type="application/json")


def register_process_metrics(metrics: Metrics, *, role: str, settings_hash: str, started_s: float) -> None:
    """Register the metrics of the process itself, in this registry and not in the global one."""
    registry: CollectorRegistry = metrics.registry
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    metrics.gauge(
        "shale_build_info",
        version=version(),
        revision=revision(),
        python_version=platform.python_version(),
        component=role,
        formats=FORMATS,
    ).set(1)
    metrics.gauge("shale_daemon_info", component=role).set(1)
    metrics.gauge("shale_exit_code", component=role).set(0)
    metrics.gauge("shale_start_timestamp_seconds").set(started_s)
    metrics.gauge("shale_config_hash_info", sha256_8=settings_hash).set(1)
    metrics.gauge("shale_config_last_reload_success").set(1)
    metrics.gauge("shale_config_last_reload_timestamp_seconds").set(started_s)


async def _failed(request: Request, error: Exception) -> Response:  # noqa: ARG001 - the signature of a handler
    """Answer 500; the error is raised again, and logged."""
    detail = "internal server error; see the log of the process"
    return response(Problem(HTTPStatus.INTERNAL_SERVER_ERROR, detail, kind="internal"))


def _level_of(body: bytes | bytearray) -> str:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ""
    level = value.get("level") if isinstance(value, dict) else value
    return level.lower() if isinstance(level, str) else ""
