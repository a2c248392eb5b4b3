"""Clients that do not read responses of medium size, for which no memory was reserved."""

import anyio
import pytest

from shale.concurrency.byte_budget import ByteBudget
from shale.core.memory_account import MemoryAccount
from shale.service.memory.unread_responses import UnreadResponses


def test_what_waited_longest_is_dropped_if_it_is_not_small() -> None:
    budget, dropped = ByteBudget(1000), []
    unread = UnreadResponses(budget, MemoryAccount(1 << 30))
    shares = [unread.share(lambda name=name: dropped.append(name)) for name in range(5)]
    for share, size_bytes in zip(shares[:4], (100, 400, 300, 200), strict=True):
        share.count(size_bytes)
    assert (budget.used_bytes, dropped) == (1000, [])
    shares[4].count(250)
    assert (budget.used_bytes, dropped) == (850, [1]), "the first keeps less than half the mean"
    shares[4].count(650)
    assert (budget.used_bytes, dropped) == (600, [1, 4]), "or the newest, if only it keeps much"
    for share in shares:
        share.count(0)
    assert budget.used_bytes == 0


def test_a_client_that_may_read_at_once_is_not_dropped_for_many_that_keep_less() -> None:
    """Only its response would have at least the mean."""
    budget, dropped = ByteBudget(1000), []
    unread = UnreadResponses(budget, MemoryAccount(1 << 30))
    for name in range(50):
        unread.share(lambda name=name: dropped.append(name)).count(20)
    honest = [unread.share(lambda: dropped.append("honest")) for _ in range(2)]
    for share in honest:
        share.count(100)
    assert dropped == list(range(10))
    assert budget.used_bytes == 1000


def test_a_single_response_is_never_too_large() -> None:
    budget, dropped = ByteBudget(1000), []
    unread = UnreadResponses(budget, MemoryAccount(1 << 30))
    unread.share(lambda: dropped.append("alone")).count(5000)
    assert (budget.used_bytes, dropped) == (5000, [])


@pytest.mark.parametrize("is_contended", [False, True])
def test_half_is_left_to_large_values_that_wait(is_contended: bool) -> None:
    async def main() -> None:
        budget, dropped = ByteBudget(1000), []
        unread = UnreadResponses(budget, MemoryAccount(1 << 30))
        shares = [unread.share(lambda name=name: dropped.append(name)) for name in range(4)]
        for share in shares[:3]:
            share.count(200)
        async with anyio.create_task_group() as tasks:
            if is_contended:
                tasks.start_soon(budget.take, 500)
                await anyio.wait_all_tasks_blocked()
            shares[3].count(100)
            await anyio.wait_all_tasks_blocked()
            assert dropped == ([0] if is_contended else [])
            assert budget.used_bytes == (1000 if is_contended else 700)
            tasks.cancel_scope.cancel()

    anyio.run(main)
