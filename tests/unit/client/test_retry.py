"""When a request is sent again, on a loop whose clock jumps to the next timer."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from random import Random

import httpx
import pytest

from shale.client.retry import ClientRetryPolicy
from shale.env import Env, InlineCpu
from shale.errors import UnavailableError
from shale.testing.sim_process import SimClock
from shale.testing.virtual_loop import VirtualLoop

TOTAL_S = 120.0


def sent_at(*retry_after: str, attempts: int = 6) -> tuple[list[float], Exception | None]:
    """Return when requests were sent, and the error; each header is of a refusal, and then requests succeed."""
    loop, times, answers = VirtualLoop(), list[float](), list(retry_after)

    async def send() -> httpx.Response:
        times.append(loop.time())
        if not answers:
            return httpx.Response(204)
        return httpx.Response(429, headers={"Retry-After": answers.pop(0)}, content=b"{}")

    policy = ClientRetryPolicy(attempts, TOTAL_S, Env(SimClock(loop), Random(3), InlineCpu()))
    error = run(loop, lambda: policy.request("http://port", send))
    return times, error


def run(loop: VirtualLoop, call: Callable[[], Awaitable[httpx.Response]]) -> Exception | None:
    async def main() -> Exception | None:
        try:
            await call()
        except UnavailableError as error:
            return error
        return None

    asyncio.set_event_loop(loop)
    try:
        task = loop.create_task(main())
        loop.run_until(3600)
        return task.result()
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def test_a_request_is_not_repeated_before_the_server_asks_for_it() -> None:
    times, error = sent_at("30", "45")
    assert error is None
    assert [round(later - earlier) for earlier, later in pairwise(times)] == [30, 45]


@pytest.mark.parametrize("header", ["121", "86400", "9" * 400], ids=["seconds", "day", "endless"])
def test_a_pause_beyond_the_time_limit_is_not_begun(header: str) -> None:
    times, error = sent_at(header)
    assert times == [0.0]
    assert isinstance(error, UnavailableError)


@pytest.mark.parametrize("header", ["0", "", "-5", "soon", "Thu, 26 Nov 2026 10:00:00 GMT"])
def test_without_seconds_the_pause_grows_by_itself(header: str) -> None:
    times, error = sent_at(header, header)
    assert error is None
    assert 0 < times[1] <= 0.1
    assert times[1] < times[2] <= 0.3
