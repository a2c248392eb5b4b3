"""The routes of the console: who may see what, limits, and escaped text."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import httpx
import orjson
import pytest
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.types import Message

import shale
from shale.admin.context import AdminContext
from shale.admin.gc import GcAdmin
from shale.console.database_view import VIEWS_MAX
from shale.console.page import render_page
from shale.console.routes import CLIENTS_MAX, ConsoleRoutes
from shale.console.source import EXISTENCE_INTERVAL_S, INTERVAL_S, ConsoleSource
from shale.engine.location import DatabaseStores
from shale.env import Env
from shale.service.access import AccessTokens, Role
from shale.store.memory import MemoryStore
from shale.store.port import GetResult
from shale.telemetry.metrics import Metrics
from shale.telemetry.recent_events import RecentEvents
from tests.clocks import ManualClock
from tests.unit.service.admin_client import problem

pytestmark = pytest.mark.anyio
READ = {"Authorization": "Bearer r"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def context_of(store: MemoryStore, env: Env) -> AdminContext:
    return AdminContext.of(DatabaseStores(store, None, (), 2), "db", env, Metrics())


class Served:
    """A console of a database in memory."""

    def __init__(
        self, db: shale.Db, source: ConsoleSource, app: Starlette, client: httpx.AsyncClient, tokens: AccessTokens
    ) -> None:
        self.db, self.source, self.app, self.client, self.tokens = db, source, app, client, tokens


@asynccontextmanager
async def served(*, token: str | None = "r", reads: bool = True) -> AsyncIterator[Served]:
    store, env = MemoryStore(), Env.system()
    async with shale.Db.open("db", store=store, env=env, flush_interval=0, l0_max_ssts=100) as db:
        tokens = AccessTokens([] if token is None else [(SecretStr(token), Role.READ)])
        source = ConsoleSource(context_of(store, env), lambda: {"role": "writer"}, dict, RecentEvents())
        routes = ConsoleRoutes(source, lambda: {"db": "<db>"}, tokens, db if reads else None)
        app = Starlette(routes=routes.routes())
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://admin") as client:
            yield Served(db, source, app, client, tokens)


async def test_the_page_is_escaped_and_allows_only_its_own_files() -> None:
    async with served() as console:
        page = await console.client.get("/")
        assert "&lt;db&gt;" in page.text
        assert "<db>" not in page.text
        assert "style=" not in page.text
        for path in ("/", "/console.js", "/console.css"):
            answer = await console.client.get(path)
            assert answer.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
            assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(("method", "path"), [("GET", "events"), ("GET", "candidates"), ("POST", "lookup")])
async def test_data_needs_a_token_if_there_are_any(method: str, path: str) -> None:
    async with served() as console:
        problem(await console.client.request(method, f"/console/{path}"), 401)
        wrong = {"Authorization": "Bearer no"}
        problem(await console.client.request(method, f"/console/{path}", headers=wrong), 401)


async def test_rows_are_never_shown_without_a_token() -> None:
    async with served(token=None) as console:
        await console.db.put(b"a", b"1")
        refused = problem(await console.client.post("/console/lookup", json={"key": "a"}), 403)
        assert "set tokens.read" in refused["detail"]
        assert (await console.client.get("/console/candidates")).status_code == 200


async def test_a_process_without_rows_has_no_lookup() -> None:
    async with served(reads=False) as console:
        assert (await console.client.post("/console/lookup", json={"key": "a"}, headers=READ)).status_code == 404
        assert 'id="lookup"' not in (await console.client.get("/")).text
    assert 'id="lookup"' in render_page({}, is_open=True, can_look_up=True)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"key": "a"}, 200),
        ({"key": "61", "format": "hex"}, 200),
        ({"key": "b"}, 404),
        ({"key": "6", "format": "hex"}, 400),
        ({"key": ""}, 400),
        ({"key": 5}, 400),
        ({"key": "61", "format": "HEX"}, 400),
        ({"keys": "a"}, 400),
    ],
    ids=str,
)
async def test_a_lookup(fields: dict[str, Any], status: int) -> None:
    async with served() as console:
        await console.db.put(b"a", b"1" * 5000)
        answer = await console.client.post("/console/lookup", json=fields, headers=READ)
        assert answer.status_code == status
        if status == 200:
            assert answer.json()["value_bytes"] == 5000
            assert len(answer.json()["value_b64"]) < 6000


async def test_a_state_shows_trees_checkpoints_and_what_they_pin() -> None:
    async with served() as console:
        await console.db.put(b"a", b"1")
        await console.db.flush("memtable")
        await console.db.checkpoint(name="nightly")
        state = orjson.loads(await console.source.state())
        database = state["database"]
        assert state["problem"] is None
        assert database["trees"][0]["l0_count"] == 1
        assert database["writer_epoch"] == 1
        assert "nightly" in [each["name"] for each in database["checkpoints"]]
        assert database["boundaries"] == {"manifest": 0, "compactions": 0}


async def test_a_picture_that_is_cut_says_so_and_has_the_sizes_of_the_whole() -> None:
    async with served() as console:
        for number in range(VIEWS_MAX + 3):
            await console.db.put(b"%d" % number, b"1")
            await console.db.flush("memtable")
        tree = orjson.loads(await console.source.state())["database"]["trees"][0]
        sizes = [each["bytes"] for each in tree["l0"]]
        assert (len(sizes), tree["l0_count"]) == (VIEWS_MAX, VIEWS_MAX + 3)
        assert tree["l0_bytes"] > sum(sizes)


async def test_a_database_that_is_gone_is_a_problem_and_a_new_one_in_its_place_is_shown() -> None:
    clock, store = ManualClock(), MemoryStore()
    env = replace(Env.system(), clock=clock)
    source = ConsoleSource(context_of(store, env), dict, dict, RecentEvents())

    async def state() -> dict[str, Any]:
        clock.sleep(EXISTENCE_INTERVAL_S)
        found: dict[str, Any] = orjson.loads(await source.state())
        return found

    for opens in (2, 1):
        for _ in range(opens):
            await (await shale.Db.open("db", store=store, flush_interval=0)).close()
        shown = await state()
        assert (shown["problem"], shown["database"]["writer_epoch"]) == (None, opens)
        await store.delete_many([each.key for each in await store.list("db/")])
        assert "the database is gone" in (await state())["problem"]
        assert "there is no database at db" in (await state())["problem"]


async def test_a_store_that_does_not_answer_is_a_problem_beside_the_last_state(monkeypatch: pytest.MonkeyPatch) -> None:
    class StoppedStore(MemoryStore):
        """A store that stops to answer."""

        is_stopped = False

        async def get(self, key: str) -> GetResult | None:
            if self.is_stopped:
                await anyio.sleep_forever()
            return await super().get(key)

    clock, store = ManualClock(), StoppedStore()
    await (await shale.Db.open("db", store=store, flush_interval=0)).close()
    source = ConsoleSource(context_of(store, replace(Env.system(), clock=clock)), dict, dict, RecentEvents())
    states = []
    for is_stopped in (False, True, False):
        store.is_stopped = is_stopped
        monkeypatch.setattr("shale.console.source.STORE_MAX_S", 0.01 if is_stopped else 60.0)
        clock.sleep(INTERVAL_S)
        states.append(orjson.loads(await source.state()))
    assert [each["problem"] is None for each in states] == [True, False, True]
    assert "did not answer" in states[1]["problem"]
    assert states[1]["database"] == states[0]["database"]
    assert [each["database_ms"] - states[0]["now_ms"] for each in states] == [0, 0, 2000 * INTERVAL_S]


async def test_a_listing_that_takes_long_does_not_stop_the_states(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served() as console:
        listing = anyio.Event()

        async def plan(_: object) -> None:
            listing.set()
            await anyio.sleep_forever()

        monkeypatch.setattr(GcAdmin, "plan", plan)
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(console.source.candidates)
                await listing.wait()
                assert b'"problem":null' in await console.source.state()
                tasks.cancel_scope.cancel()
        monkeypatch.setattr("shale.console.source.PLAN_MAX_S", 0.0)
        assert (
            "could not be listed"
            in problem(await console.client.get("/console/candidates", headers=READ), 503)["detail"]
        )


async def test_the_head_of_the_stream_is_no_stream() -> None:
    async with served() as console:
        answer = await console.client.head("/console/events", headers=READ)
        assert answer.headers["content-type"].startswith("text/event-stream")


async def test_the_state_is_read_once_for_all_clients() -> None:
    async with served() as console:
        first = await console.source.state()
        await console.db.put(b"a", b"1")
        assert await console.source.state() is first


async def test_there_is_a_limit_of_clients_and_clients_that_leave_make_room() -> None:
    async with served() as console:
        gone = anyio.Event()
        begun = [anyio.Event() for _ in range(CLIENTS_MAX)]
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for first in begun:
                    tasks.start_soon(_watch, console, gone, first)
                for first in begun:
                    await first.wait()
                problem(await console.client.get("/console/events", headers=READ), 503)
                gone.set()
            again = anyio.Event()
            await _watch(console, gone, again)
            assert again.is_set()


async def test_a_stream_ends_when_its_token_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shale.console.event_stream.INTERVAL_S", 0.01)
    async with served() as console:
        begun = anyio.Event()

        async def remove() -> None:
            await begun.wait()
            console.tokens.replace([(SecretStr("new"), Role.READ)])

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(remove)
                await _watch(console, anyio.Event(), begun)
        problem(await console.client.get("/console/events", headers=READ), 401)


async def _watch(console: Served, gone: anyio.Event, begun: anyio.Event) -> None:
    """Follow the events until ``gone``, and at least until the first state, which sets ``begun``."""
    headers = [(name.lower().encode(), value.encode()) for name, value in READ.items()]
    path = "/console/events"
    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": headers}

    async def receive() -> Message:
        await begun.wait()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body" and message["body"].startswith(b"data: "):
            begun.set()

    await console.app(scope, receive, send)
