"""Reads whose clients have gone."""

import asyncio
import random
from typing import Any

import pytest
from starlette.requests import ClientDisconnect

from shale.api import abandoned_requests
from shale.api.abandoned_requests import answer_if_connected
from shale.api.app import Api, Route
from shale.api.messages import Request, Response
from shale.api.settings import HttpSection
from shale.env import Env, InlineCpu, SystemClock
from shale.errors import UnavailableError
from shale.service.access import Role
from shale.telemetry.metrics import Metrics


def request(closed: list[bool]) -> Request:
    """Return a request whose connection is closed if the list has something."""

    async def receive() -> dict[str, Any]:
        raise AssertionError("the handler receives")

    extensions = {"shale.closed": {"call": lambda: bool(closed)}}
    scope = {"method": "GET", "raw_path": b"/v1/kv/a", "query_string": b"", "headers": [], "extensions": extensions}
    return Request(scope, receive)  # type: ignore[arg-type]


def test_the_answer_and_the_error_of_a_handler_are_passed_on() -> None:
    """An error is not a part of a group, which no handler of errors would know."""

    async def answers(call: Request) -> str:
        return call.method

    async def fails(_: Request) -> str:
        raise UnavailableError("no memory")

    assert asyncio.run(answer_if_connected(answers, request([]))) == "GET"
    with pytest.raises(UnavailableError, match="no memory"):
        asyncio.run(answer_if_connected(fails, request([])))


def test_a_read_ends_when_its_client_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it would wait for ever."""
    monkeypatch.setattr(abandoned_requests, "POLL_S", 0.001)
    closed: list[bool] = []
    ended = []

    async def waits(_: Request) -> None:
        try:
            closed.append(True)
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    with pytest.raises(ClientDisconnect):
        asyncio.run(asyncio.wait_for(answer_if_connected(waits, request(closed)), 30))
    assert ended


@pytest.mark.parametrize(("method", "left"), [("GET", 1), ("PUT", 4)])
def test_many_reads_of_clients_that_have_gone_leave_their_places(
    method: str, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a quarter of the places in use reads are watched; a write goes on, as it may have an effect."""
    monkeypatch.setattr(abandoned_requests, "POLL_S", 0.001)
    closed: list[bool] = []

    async def scenario() -> None:
        may_end = asyncio.Event()

        async def waits(_: Request) -> Response:
            await may_end.wait()
            return Response(200, b"")

        async def send(_: object) -> None:
            await asyncio.sleep(0)

        env = Env(SystemClock(), random.Random(1), InlineCpu())
        routes = [Route("kv", {"GET": waits}), Route("kv", {"PUT": waits}, Role.WRITE)]
        api = Api(routes, HttpSection(max_concurrent_requests=4), Metrics(db="db"), env)
        call = request(closed)
        scope = {**call.scope, "type": "http", "method": method}
        tasks = {asyncio.create_task(api(scope, call.receive, send)) for _ in range(4)}
        await asyncio.sleep(0)
        closed.append(True)
        running = tasks
        while len(running) > left:
            _, running = await asyncio.wait(running, timeout=20, return_when=asyncio.FIRST_COMPLETED)
        _, running = await asyncio.wait(running, timeout=0.05)
        assert len(running) == left, "the others stay"
        assert all(task.exception() is None for task in tasks - running)
        may_end.set()
        await asyncio.wait(running)

    asyncio.run(scenario())
