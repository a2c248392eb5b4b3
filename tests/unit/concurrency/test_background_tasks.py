"""Tasks of a handle are started in its task group while it accepts them."""

import anyio
import anyio.lowlevel
import pytest

from shale.concurrency.background_tasks import BackgroundTasks

pytestmark = pytest.mark.anyio


async def test_work_runs_in_the_group_between_open_and_close() -> None:
    background, done = BackgroundTasks(), []

    async def work() -> None:
        await anyio.lowlevel.checkpoint()
        done.append(1)

    assert not background.is_open
    async with anyio.create_task_group() as group:
        background.open(group)
        assert background.is_open
        background.start(work, name="work")
        background.close()
        assert not background.is_open
        assert done == []
    assert done == [1]


async def test_closed_it_starts_nothing() -> None:
    async def work() -> None:
        raise AssertionError

    with pytest.raises(AssertionError, match="not open"):
        BackgroundTasks().start(work, name="work")
