"""A task group between open and close."""

import asyncio
import gc

import anyio

from shale.engine.task_host import TaskHost
from shale.errors import FencedError


async def fail() -> None:
    raise FencedError("somebody else is the writer now")


def test_an_error_is_told_at_once_and_to_nobody_twice() -> None:
    """Else a program that drops a fenced handle hears of it again, whenever memory is collected."""
    told: list[BaseException] = []
    reported: list[object] = []

    async def story() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        host = TaskHost("test")
        group = await host.start(told.append)
        group.start_soon(fail)
        await anyio.wait_all_tasks_blocked()
        del host, group
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
            gc.collect()

    asyncio.run(story())
    assert [type(error) for error in told] == [FencedError]
    assert reported == []


def test_without_anybody_to_tell_the_loop_reports_it() -> None:
    reported: list[object] = []

    async def story() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        host = TaskHost("test")
        (await host.start()).start_soon(fail)
        await anyio.wait_all_tasks_blocked()
        del host
        gc.collect()

    asyncio.run(story())
    assert len(reported) == 1
