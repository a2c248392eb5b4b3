"""Bytes that concurrent work shares."""

import anyio
import pytest

from shale.concurrency.byte_budget import ByteBudget

pytestmark = pytest.mark.anyio


async def test_a_taker_waits_until_there_is_room() -> None:
    """And those after it wait for their turn, although they would fit."""
    budget, order = ByteBudget(100), list[str]()

    async def take(name: str, size: int) -> None:
        await budget.take(size)
        order.append(name)

    await take("first", 80)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take, "large", 50)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(take, "small", 10)
        await anyio.wait_all_tasks_blocked()
        assert order == ["first"]
        assert not budget.try_take(1)
        budget.give_back(80)
    assert order == ["first", "large", "small"]
    assert budget.used_bytes == 60


async def test_a_share_larger_than_the_budget_is_taken_alone() -> None:
    """No value is too large to be read at all."""
    budget = ByteBudget(100)
    await budget.take(10)
    with anyio.move_on_after(0.01) as scope:
        await budget.take(1000)
    assert scope.cancelled_caught
    budget.give_back(10)
    await budget.take(1000)
    assert budget.free_bytes == 0


async def test_a_cancelled_taker_lets_the_next_one_through() -> None:
    """It has taken nothing."""
    budget = ByteBudget(100)
    await budget.take(90)
    async with anyio.create_task_group() as tasks:
        waiting = anyio.CancelScope()

        async def large() -> None:
            with waiting:
                await budget.take(50)

        tasks.start_soon(large)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(budget.take, 10)
        await anyio.wait_all_tasks_blocked()
        waiting.cancel()
    assert budget.used_bytes == 100


async def test_a_share_gives_back_what_it_has() -> None:
    """Part of it early, the rest at the end of the block."""
    budget = ByteBudget(100)
    with budget.share() as share:
        await share.take(70)
        await share.take(10)
        share.reduce_to(20)
        assert budget.used_bytes == 20
        share.reduce_to(50)
        assert budget.used_bytes == 20
    assert budget.used_bytes == 0
