"""Request bodies that arrive too slowly, and what they hold of the budget."""

import asyncio
import json
import re
from typing import Any

import pytest

from shale.service.http.bodies import BodyBudget, BodyPace
from shale.service.http.problems import Problem, response
from tests.unit.service.http.test_connection import on_a_connection

BUDGET_BYTES = 1 << 20
PACE = BodyPace(10, 60, min_bytes_per_s=10_000, grace_s=0.1)


@pytest.mark.parametrize(
    ("parts", "wait_max_s"),
    [
        pytest.param([], 10, id="the grace at the start"),
        pytest.param([(4, 1)], 6 + 1 / 1024, id="one byte: the rest of the grace"),
        pytest.param([(10, 20 << 10)], 20, id="as much as is due in 20 s"),
        pytest.param([(4, 20 << 10), (20, 1 << 10)], 11, id="the rate counts from the start"),
        pytest.param([(1, 1 << 20)], 30, id="a fast start is half a minute ahead at most"),
        pytest.param([(1, 1 << 20), (20, 1), (31, 1)], 2 / 1024, id="and then the rate counts again"),
    ],
)
def test_how_long_a_part_may_take(parts: list[tuple[float, int]], wait_max_s: float) -> None:
    pace = BodyPace(60, 600, 1024, 10)
    due_s, elapsed_s = pace.grace_s, 0.0
    for elapsed_s, size in parts:
        due_s = pace.due_s(due_s, elapsed_s, size)
    assert pace.wait_max_s(elapsed_s, due_s) == pytest.approx(wait_max_s)
    assert BodyPace(60, 600).wait_max_s(elapsed_s, BodyPace(60, 600).due_s(0, elapsed_s, 1)) == 60


def test_a_body_that_comes_at_once_and_then_drips_is_refused() -> None:
    reading = Reading(BodyPace(10, 60, min_bytes_per_s=10_000, grace_s=0.1, credit_s=0.2))

    async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 900000\r\n\r\n" + bytes(800_000))
        answer = asyncio.ensure_future(refusal(reader))
        while not answer.done():
            writer.write(b"v")
            await asyncio.wait([answer], timeout=0.02)
        assert answer.result()["status"] == 408
        reading.assert_free()

    on_a_connection(scenario, app=reading)


async def refusal(reader: asyncio.StreamReader) -> dict[str, Any]:
    """Read one answer, not up to the end: bytes that the client sends after it reset the connection."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    assert length is not None
    assert b"connection: close" in head
    fields: dict[str, Any] = json.loads(await reader.readexactly(int(length[1])))
    return fields


class Reading:
    """An application that reads each body with a budget."""

    def __init__(self, pace: BodyPace) -> None:
        self.budget = BodyBudget(BUDGET_BYTES, BUDGET_BYTES, pace)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            with await self.budget.read(receive) as body:
                size = len(body.data)
        except Problem as problem:
            await response(problem)(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"7")]})
        await send({"type": "http.response.body", "body": b"%07d" % size})

    def assert_free(self) -> None:
        self.budget.take(BUDGET_BYTES)


def test_a_body_that_arrives_drop_by_drop_is_refused_and_its_memory_is_free() -> None:
    app = Reading(PACE)

    async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\n")
        answer = asyncio.create_task(refusal(reader))
        while not answer.done():
            writer.write(b"x")
            await asyncio.wait([answer], timeout=0.01)
        assert (answer.result()["status"], "bytes/s" in answer.result()["detail"]) == (408, True)
        app.assert_free()

    on_a_connection(scenario, app=app)


def test_a_body_that_stops_after_a_fast_start_is_refused_when_its_rate_is_too_low() -> None:
    app = Reading(PACE)

    async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\n" + bytes(2_000))
        start_s = asyncio.get_running_loop().time()
        assert (await refusal(reader))["status"] == 408
        assert asyncio.get_running_loop().time() - start_s >= 0.19
        app.assert_free()

    on_a_connection(scenario, app=app)


def test_a_slow_body_above_the_rate_is_taken() -> None:
    async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 50000\r\n\r\n")
        for _ in range(50):
            writer.write(bytes(1000))
            await asyncio.sleep(0.01)
        assert (await reader.readuntil(b"0050000")).startswith(b"HTTP/1.1 200")

    on_a_connection(scenario, app=Reading(BodyPace(10, 60, min_bytes_per_s=1000, grace_s=0.1)))


def test_what_a_body_is_decoded_to_counts_until_it_is_released() -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": bytes(1000), "more_body": False}

    async def scenario() -> None:
        budget = BodyBudget(BUDGET_BYTES, BUDGET_BYTES, PACE)
        with await budget.read(receive) as body:
            with pytest.raises(Problem) as refused:
                body.expand(BUDGET_BYTES)
            assert refused.value.status == 413
            body.expand(BUDGET_BYTES - 1000)
            with pytest.raises(Problem) as refused:
                budget.take(1)
            assert refused.value.status == 503
        budget.take(BUDGET_BYTES)

    asyncio.run(scenario())


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_that_holds_requests_is_one_body(is_chunked: bool) -> None:
    """Search for pipelined requests in what follows a body, not in the body."""
    body = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n" * 1_923  # 49,998 bytes
    framing = b"transfer-encoding: chunked" if is_chunked else b"content-length: %d" % len(body)
    content = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if is_chunked else body

    async def scenario(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"PUT / HTTP/1.1\r\nhost: a\r\n%b\r\n\r\n" % framing + content)
        writer.write(b"PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\nabc")
        assert (await reader.readuntil(b"%07d" % len(body))).startswith(b"HTTP/1.1 200")
        assert (await reader.readuntil(b"0000003")).startswith(b"HTTP/1.1 200")

    on_a_connection(scenario, app=Reading(PACE))


def test_large_bodies_take_turns_so_that_one_part_is_taken_in_a_round_of_the_loop() -> None:
    rounds = [0]
    parts: list[int] = []

    async def tick() -> None:
        while True:
            await asyncio.sleep(0)
            rounds[0] += 1

    def parts_of_a_body() -> Any:
        left = iter(range(20))

        async def receive() -> dict[str, Any]:
            number = next(left)
            if number:
                parts.append(rounds[0])
            return {"type": "http.request", "body": bytes(64 << 10), "more_body": number < 19}

        return receive

    async def scenario() -> None:
        budget = BodyBudget(1 << 30, 1 << 30, PACE)
        ticker = asyncio.create_task(tick())
        await asyncio.gather(*[budget.read(parts_of_a_body()) for _ in range(10)])
        ticker.cancel()

    asyncio.run(scenario())
    assert len(parts) == len(set(parts)) == 190
