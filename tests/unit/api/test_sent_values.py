"""Large values that several clients read at the same time."""

import asyncio

from shale.api.sent_values import SentValues
from shale.concurrency.byte_budget import ByteBudget, TaskShares

VALUE = b"v" * 1000


def test_there_is_one_copy_of_a_value_however_many_read_it() -> None:
    """And it counts once, until the last of them has ended."""

    async def main() -> None:
        budget = ByteBudget(1500)
        values = SentValues(TaskShares(budget))
        ends = [asyncio.Event() for _ in range(3)]

        async def send(end: asyncio.Event) -> bytes:
            held = values.try_hold((b"k", 1), bytes(bytearray(VALUE)))
            assert held is not None
            await end.wait()
            return held

        async def send_other() -> bytes | None:
            return values.try_hold((b"k", 2), VALUE)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(send(end)) for end in ends]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert budget.used_bytes == len(VALUE)
            assert await group.create_task(send_other()) is None
            for end in ends[:2]:
                end.set()
            await asyncio.sleep(0)
            assert await group.create_task(send_other()) is None
            ends[2].set()
            await tasks[2]
            await asyncio.sleep(0)
            assert await group.create_task(send_other()) == VALUE
        assert len({id(task.result()) for task in tasks}) == 1
        await asyncio.sleep(0)
        assert budget.used_bytes == 0

    asyncio.run(main())


def test_a_value_that_was_read_with_a_share_keeps_as_much_as_it_needs() -> None:
    """The copies that reading takes are given back."""

    async def main() -> None:
        budget = ByteBudget(5000)
        shares = TaskShares(budget)

        async def send() -> None:
            await shares.take(3000)
            assert SentValues(shares).try_hold((b"k", 1), VALUE) == VALUE
            assert budget.used_bytes == 1000

        await asyncio.create_task(send())
        await asyncio.sleep(0)
        assert budget.used_bytes == 0

    asyncio.run(main())


def test_values_that_are_larger_than_what_was_read_do_not_wait_for_each_other() -> None:
    """Compressed ones: each has a share of the stored size, and none has enough for its value."""

    async def main() -> None:
        budget = ByteBudget(1500)
        shares = TaskShares(budget)
        values = SentValues(shares)

        async def send(key: bytes) -> None:
            await shares.take(700)
            await asyncio.sleep(0)
            while values.try_hold((key, 1), VALUE) is None:
                await shares.take(len(VALUE))

        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            group.create_task(send(b"a"))
            group.create_task(send(b"b"))
        await asyncio.sleep(0)
        assert budget.used_bytes == 0

    asyncio.run(main())
