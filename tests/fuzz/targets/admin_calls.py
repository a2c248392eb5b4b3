"""The calls of the admin port and of the console: paths, queries and bodies."""

import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import orjson
from pydantic import SecretStr
from starlette.applications import Starlette

import shale
from shale.admin.checkpoints import CheckpointAdmin
from shale.admin.compactions import CompactionAdmin
from shale.admin.context import AdminContext
from shale.api.routes.checkpoints import CheckpointRoutes
from shale.console.routes import ConsoleRoutes
from shale.console.source import ConsoleSource
from shale.engine.location import DatabaseStores
from shale.env import Env, SystemClock
from shale.service.access import AccessTokens, Role
from shale.service.admin import AdminApp
from shale.service.health import Health
from shale.store.memory import MemoryStore
from shale.telemetry.metrics import Metrics
from shale.telemetry.recent_events import RecentEvents
from shale_compactor.admin_api import CompactionsApi
from tests.fuzz import loop
from tests.fuzz.target import Target
from tests.fuzz.targets.http import mutate_request, send_request
from tests.unit.api.harness import b64
from tests.unit.compactor.harness import Harness
from tests.unit.compactor.values import manifest, tree

_ID = "00000000-0000-0000-0000-00000000004d"
_ULID = "00000000000000000000000009"
_REQUESTS_MAX = 300
"""After so many, the database is a new one: requests leave checkpoints and compactions."""
_ADMIN = "/v1/admin"
_ROUTES: tuple[tuple[str, str, Any], ...] = (
    ("POST", f"{_ADMIN}/checkpoints", {"name": "a", "lifetime": "1h", "source": _ID, "id": _ID, "scope": "durable"}),
    ("POST", f"{_ADMIN}/checkpoints", {"lifetime": 60, "scope": "all"}),
    ("GET", f"{_ADMIN}/checkpoints?name=a", None),
    ("PATCH", f"{_ADMIN}/checkpoints/{_ID}", {"lifetime": None}),
    ("DELETE", f"{_ADMIN}/checkpoints/{_ID}", None),
    ("POST", f"{_ADMIN}/compactions?dry_run=true", "Full"),
    ("POST", f"{_ADMIN}/compactions", {"FullSegment": {"segment": "log"}}),
    ("POST", f"{_ADMIN}/compactions", {"Spec": {"sources": [{"SortedRun": 3}, {"SortedRun": 2}], "destination": 2}}),
    ("GET", f"{_ADMIN}/compactions?all=true", None),
    ("GET", f"{_ADMIN}/compactions/{_ULID}", None),
    ("POST", f"{_ADMIN}/compactions/{_ULID}/cancel", None),
    ("POST", f"{_ADMIN}/compactions/{_ULID}/retry", None),
    ("PUT", f"{_ADMIN}/log-level", {"level": "error"}),
    ("POST", "/console/lookup", {"key": "k", "format": "utf8"}),
    ("POST", "/console/lookup", {"key": b64(b"k"), "format": "base64"}),
    ("GET", "/console/candidates", None),
    ("GET", "/statusz", None),
)


@asynccontextmanager
async def _opened() -> AsyncIterator[Any]:
    """Open the admin port of a writer whose coordinator takes requests, too; the token ``a`` may do everything."""
    store, env, metrics = MemoryStore(), Env.system(), Metrics(db="db")
    harness = await Harness(manifest(tree((4, 3, 2, 1), (3, 2, 1)), log=tree((14, 13), (8, 6)))).create()
    await harness.compactions.load_or_create()
    async with shale.Db.open("db", store=store, env=env, flush_interval=0, writer_checkpoint=False) as db:
        await db.put(b"k", b"v")
        tokens = AccessTokens([(SecretStr("a"), Role.ADMIN)])
        app = AdminApp(Health(SystemClock(), metrics), metrics, tokens)
        place = AdminContext.of(DatabaseStores(store, None, ()), "db", env, metrics, component="writer")
        source = ConsoleSource(place, lambda: {"role": "writer"}, dict, RecentEvents())
        compactions = CompactionAdmin(harness.store, "db", harness.new_env(5))
        for route in (
            *CheckpointRoutes(CheckpointAdmin(place), env, db).routes(),
            *CompactionsApi(compactions, changed=lambda: None).routes(),
        ):
            app.add_route(route)
        console = Starlette(routes=ConsoleRoutes(source, lambda: {"db": "db"}, tokens, db).routes())

        async def either(scope: Any, receive: Any, send: Any) -> None:
            await (console if scope["path"].startswith("/console") else app.asgi)(scope, receive, send)

        yield either


class _Port:
    """The port that is open, and the number of requests that it has answered."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._app: Any = None
        self._answered = 0

    async def send(self, data: bytes) -> None:
        if self._app is None or self._answered >= _REQUESTS_MAX:
            await self._stack.aclose()
            self._app, self._answered = await self._stack.enter_async_context(_opened()), 0
        self._answered += 1
        await send_request(self._app, data)


_PORT = _Port()


def _call(data: bytes) -> None:
    first = data.partition(b"\r\n")[0]
    if not first.isascii() or b"/console/events" in first:
        return  # the parser of the server refuses the one; the other is a stream without an end
    loop.run(_PORT.send(data))


def _seeds() -> list[bytes]:
    head = "authorization: Bearer a\r\ncontent-type: application/json"
    return [
        f"{method} {target}\r\n{head}\r\n\r\n".encode() + (b"" if fields is None else orjson.dumps(fields))
        for method, target, fields in _ROUTES
    ]


def _mutate(rng: random.Random, data: bytes) -> bytes:
    return mutate_request(rng, data, _ROUTES)


def targets() -> list[Target]:
    modules = (
        *("shale.service.admin", "shale.service.admin_calls", "shale.console.routes", "shale.api.routes.checkpoints"),
        *("shale_compactor.admin_api", "shale.compaction.requests"),
    )
    return [Target("admin call", _call, _seeds, (), modules, _mutate, weight=2)]
