"""Adds the console to the admin port of a daemon, or serves it alone.

The console itself is imported at its first request: most daemons start more often than a page is opened.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.routing import BaseRoute, Route, Router
from starlette.types import Receive, Scope, Send

from shale.service.audit import AuditMiddleware
from shale.service.process import Process

if TYPE_CHECKING:
    from shale.engine.location import DatabaseStores
    from shale.engine.read.reads import Reads
    from shale.env import Env
    from shale.service.access import Quotas

PATHS = ("/", "/console.js", "/console.css", "/console/{rest:path}")


def add_console(process: Process[Any], reads: "Reads | None" = None, quotas: "Quotas | None" = None) -> None:
    """Serve the console of the process's database.

    Args:
        process: the daemon.
        reads: the open database, for looking up keys.
        quotas: those of the data ports, in which lookups count.
    """
    console = _Console(process, reads, quotas)
    for path in PATHS:
        process.admin.add_route(Route(path, console))


class _Console:
    """The console of a daemon, an ASGI application that is made by its first request."""

    def __init__(self, process: Process[Any], reads: "Reads | None", quotas: "Quotas | None") -> None:
        self._process = process
        self._reads = reads
        self._quotas = quotas
        self._router: Router | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if self._router is None:
            self._router = Router(_daemon_routes(self._process, self._reads, self._quotas), redirect_slashes=False)
        await self._router(scope, receive, send)


def _daemon_routes(process: Process[Any], reads: "Reads | None", quotas: "Quotas | None") -> list[BaseRoute]:
    """Return the routes of a daemon's console.

    What it reads of manifests counts in metrics of its own, which are not exported: it is no work of the daemon.
    """
    from shale.admin.context import AdminContext
    from shale.console.counters import Counters
    from shale.console.routes import LOOKUP, ConsoleRoutes
    from shale.console.source import ConsoleSource
    from shale.telemetry.metrics import Metrics
    from shale.telemetry.recent_events import RECENT_EVENTS

    place = AdminContext.of(process.stores, process.root, process.env, Metrics(), component="admin")

    def status() -> dict[str, Any]:
        return {**process.health.status(), "ready": process.health.ready().word}

    source = ConsoleSource(place, status, Counters(process.metrics).read, RECENT_EVENTS)
    tokens = process.admin.tokens
    audit = partial(AuditMiddleware, prefix=LOOKUP, tokens=tokens, metrics=process.metrics, ids=process.env.ids)
    return ConsoleRoutes(source, process.health.status, tokens, reads, quotas=quotas, audit=audit).routes()


def console_routes(
    stores: "DatabaseStores", root: str, env: "Env", reads: "Reads", *, status: Mapping[str, Any], token: str
) -> list[BaseRoute]:
    """Return the routes of a console without a daemon.

    Args:
        stores: the stores of the database; they are only read.
        root: the path of the database.
        env: clock, randomness, ids and threads.
        reads: the open database, for looking up keys.
        status: what the page shows about the process.
        token: the only token, with the role read.
    """
    from pydantic import SecretStr

    from shale.admin.context import AdminContext
    from shale.console.routes import ConsoleRoutes
    from shale.console.source import ConsoleSource
    from shale.service.access import AccessTokens, Role
    from shale.service.build import version
    from shale.telemetry.metrics import Metrics
    from shale.telemetry.recent_events import RECENT_EVENTS

    about = {**status, "version": version()}
    source = ConsoleSource(AdminContext.of(stores, root, env, Metrics()), lambda: about, dict, RECENT_EVENTS)
    tokens = AccessTokens([(SecretStr(token), Role.READ)])
    return ConsoleRoutes(source, lambda: about, tokens, reads).routes()
