"""Adds the console to the admin port of a daemon, or serves it alone."""

from collections.abc import Mapping
from typing import Any

from pydantic import SecretStr
from starlette.routing import Route

from shale.admin.context import AdminContext
from shale.console.counters import Counters
from shale.console.routes import ConsoleRoutes
from shale.console.source import ConsoleSource
from shale.engine.location import DatabaseStores
from shale.engine.read.reads import Reads
from shale.env import Env
from shale.service.access import AccessTokens, Role
from shale.service.build import version
from shale.service.process import Process
from shale.telemetry.metrics import Metrics
from shale.telemetry.recent_events import RECENT_EVENTS


def add_console(process: Process[Any], reads: Reads | None = None) -> None:
    """Serve the console of the process's database; ``reads``: the open database, for looking up keys.

    What it reads of manifests counts in metrics of its own, which are not exported: it is no work of the daemon.
    """
    place = AdminContext.of(process.stores, process.root, process.env, Metrics(), component="admin")

    def status() -> dict[str, Any]:
        return {**process.health.status(), "ready": process.health.ready().word}

    source = ConsoleSource(place, status, Counters(process.metrics).read, RECENT_EVENTS)
    for route in ConsoleRoutes(source, process.health.status, process.admin.tokens, reads).routes():
        process.admin.add_route(route)


def console_routes(
    stores: DatabaseStores, root: str, env: Env, reads: Reads, *, status: Mapping[str, Any], token: str
) -> list[Route]:
    """Return the routes of a console without a daemon.

    Args:
        stores: the stores of the database; they are only read.
        root: the path of the database.
        env: clock, randomness, ids and threads.
        reads: the open database, for looking up keys.
        status: what the page shows about the process.
        token: the only token, with the role read.
    """
    about = {**status, "version": version()}
    source = ConsoleSource(AdminContext.of(stores, root, env, Metrics()), lambda: about, dict, RECENT_EVENTS)
    tokens = AccessTokens([(SecretStr(token), Role.READ)])
    return ConsoleRoutes(source, lambda: about, tokens, reads).routes()
