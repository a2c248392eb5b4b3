"""A task group between open and close."""

import asyncio
import gc

import anyio

from shale.concurrency.task_host import TaskHost
from shale.errors import FencedError


async def fail() -> None:
    raise FencedError("another process is the writer now")


def test_an_error_is_reported_at_once_and_only_once() -> None:
    """Otherwise a program that drops a fenced handle would see the error again at a garbage collection."""
    told: list[BaseException] = []
    reported: list[object] = []

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        host = TaskHost("test")
        group = await host.start(told.append)
        group.start_soon(fail)
        await anyio.wait_all_tasks_blocked()
        del host, group
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
            gc.collect()

    asyncio.run(scenario())
    assert [type(error) for error in told] == [FencedError]
    assert reported == []


def test_without_a_listener_the_loop_reports_the_error() -> None:
    reported: list[object] = []

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        host = TaskHost("test")
        (await host.start()).start_soon(fail)
        await anyio.wait_all_tasks_blocked()
        del host
        gc.collect()

    asyncio.run(scenario())
    assert len(reported) == 1
