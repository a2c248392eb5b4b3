"""Concurrent requests: their order, their limit, and the effect of an error on the others."""

import gc
import weakref
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import anyio
import anyio.lowlevel
import pytest

from shale.concurrency.gather import REQUESTS_MAX, gather
from shale.concurrency.read_ahead import ReadAhead
from shale.errors import UnavailableError

pytestmark = pytest.mark.anyio


async def test_results_come_in_the_order_of_the_works_and_no_more_than_the_bound_run_at_once() -> None:
    running = most = 0

    async def work(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(number % 5):
            await anyio.lowlevel.checkpoint()
        running -= 1
        return number

    count = 3 * REQUESTS_MAX + 1
    assert await gather([partial(work, number) for number in range(count)]) == list(range(count))
    assert most == REQUESTS_MAX


async def test_the_first_error_is_raised_as_it_is_and_nothing_new_begins() -> None:
    begun: list[int] = []

    async def work(number: int) -> None:
        begun.append(number)
        await anyio.lowlevel.checkpoint()
        if number == 3:
            raise UnavailableError("the third")
        await anyio.sleep_forever()

    works = [partial(work, number) for number in range(2 * REQUESTS_MAX)]
    with pytest.raises(UnavailableError, match="the third"):
        await gather(works)
    assert begun == list(range(REQUESTS_MAX))


async def test_a_cancelled_caller_begins_nothing() -> None:
    begun: list[int] = []

    async def work(number: int) -> None:
        begun.append(number)

    with anyio.CancelScope() as scope:
        scope.cancel()
        await gather([partial(work, number) for number in range(5)])
    assert not begun


class Buffer:
    """What a request holds."""


@pytest.fixture
def no_gc() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_gc")
@pytest.mark.parametrize("how", ["gather", "read ahead"])
async def test_an_error_keeps_nothing_that_the_requests_hold(how: str) -> None:
    """Daemons seldom search for cycles, so a buffer of megabytes in one would stay for minutes."""
    held: list[weakref.ref[Buffer]] = []

    async def work() -> None:
        buffer = Buffer()
        held.append(weakref.ref(buffer))
        await anyio.lowlevel.checkpoint()
        raise UnavailableError("no answer")

    async def run() -> None:
        if how == "gather":
            await gather([work, anyio.sleep_forever])
        else:
            await ReadAhead(tasks).start(work).wait()

    async with anyio.create_task_group() as tasks:
        with pytest.raises(UnavailableError):
            await run()
    (buffer,) = held
    assert buffer() is None


@pytest.mark.usefixtures("no_gc")
@pytest.mark.parametrize("how", ["cancelled", "failed"])
async def test_works_that_were_cancelled_keep_nothing(how: str) -> None:
    """The scans of clients that have gone held megabytes each."""
    held: list[weakref.ref[Buffer]] = []
    scope = anyio.CancelScope()

    async def begun(buffer: Buffer) -> Buffer:
        return buffer

    async def waits(buffer: Buffer) -> Buffer:
        await anyio.sleep_forever()
        return buffer

    async def ends() -> Buffer:
        await anyio.lowlevel.checkpoint()
        if how == "failed":
            raise UnavailableError("no answer")
        scope.cancel()
        return await waits(Buffer())

    async def run() -> None:
        buffers = [Buffer() for _ in range(3)]
        held.extend(map(weakref.ref, buffers))
        await gather([partial(begun, buffers[0]), *(partial(waits, buffer) for buffer in buffers[1:]), ends])

    with scope, suppress(UnavailableError):
        await run()
    await anyio.lowlevel.checkpoint()
    assert [buffer() for buffer in held] == [None] * 3
