"""Wake-ups: a signal reaches current waiters only, a wake event is kept until the next wait."""

import anyio
import pytest

from shale.concurrency.signal import Signal, WakeEvent

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_signal_without_a_waiter_is_lost() -> None:
    signal = Signal()
    signal.notify()
    assert not await signal.wait_for(0.01)


async def test_a_signal_wakes_all_waiters() -> None:
    signal, woken = Signal(), []

    async def wait(name: str) -> None:
        woken.append((name, await signal.wait_for(5.0)))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait, "a")
        tasks.start_soon(wait, "b")
        await anyio.wait_all_tasks_blocked()
        signal.notify()
    assert sorted(woken) == [("a", True), ("b", True)]


async def test_a_wake_event_is_kept_for_the_next_wait_and_then_reset() -> None:
    event = WakeEvent()
    event.notify()
    event.notify()
    with anyio.fail_after(60):
        assert await event.wait_for(60.0)
    assert not await event.wait_for(0.01)


async def test_a_wake_event_ends_a_running_wait() -> None:
    event, woken = WakeEvent(), []

    async def wait() -> None:
        woken.append(await event.wait_for(60.0))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            event.notify()
    assert woken == [True]
