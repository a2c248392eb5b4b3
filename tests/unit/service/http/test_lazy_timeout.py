"""Calls under a time limit that is created only when they wait."""

import anyio
import anyio.lowlevel
import pytest

from shale.service.http.lazy_timeout import run_with_lazy_timeout

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def too_late() -> TimeoutError:
    return TimeoutError("too late")


async def test_a_call_that_does_not_wait_gives_its_result() -> None:
    async def call() -> int:
        return 7

    assert await run_with_lazy_timeout(0.0, call(), too_late) == 7


async def test_a_call_that_waits_several_times_goes_on_where_it_was() -> None:
    async def call() -> list[int]:
        steps = []
        for step in range(3):
            await anyio.lowlevel.checkpoint()
            steps.append(step)
        return steps

    assert await run_with_lazy_timeout(10.0, call(), too_late) == [0, 1, 2]


@pytest.mark.parametrize("waits", [False, True])
async def test_an_error_is_the_calls_own(waits: bool) -> None:
    async def call() -> None:
        if waits:
            await anyio.lowlevel.checkpoint()
        raise KeyError("mine")

    with pytest.raises(KeyError):
        await run_with_lazy_timeout(10.0, call(), too_late)


async def test_a_call_that_takes_too_long_is_cancelled_and_cleans_up() -> None:
    ended = []

    async def call() -> None:
        try:
            await anyio.Event().wait()
        finally:
            ended.append(True)

    with pytest.raises(TimeoutError, match="too late"):
        await run_with_lazy_timeout(0.01, call(), too_late)
    assert ended == [True]


async def test_a_cancellation_from_outside_is_no_time_limit() -> None:
    async def call() -> None:
        await anyio.Event().wait()

    with anyio.move_on_after(0.01) as scope:
        await run_with_lazy_timeout(60.0, call(), too_late)
    assert scope.cancelled_caught


async def test_a_result_in_spite_of_a_cancellation_counts() -> None:
    async def call() -> str:
        with anyio.CancelScope() as inner:
            await anyio.lowlevel.checkpoint()
            inner.cancel()
            await anyio.Event().wait()
        return "done"

    async def outer() -> str:
        await anyio.lowlevel.checkpoint()
        return await call()

    assert await run_with_lazy_timeout(10.0, outer(), too_late) == "done"
