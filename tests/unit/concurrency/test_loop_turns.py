"""One step in each round of the event loop."""

import asyncio
from functools import partial

import anyio

from shale.concurrency.loop_turns import LoopTurns


def test_steps_run_one_in_each_round_in_order() -> None:
    async def main() -> None:
        turns, seen = LoopTurns(), list[object]()
        for step in "abc":
            turns.add(partial(seen.append, step))
        for number in range(4):
            await asyncio.sleep(0)
            seen.append(number)
        assert seen == ["a", 0, "b", 1, "c", 2, 3]

    asyncio.run(main())


def test_a_step_that_is_added_by_a_step_waits_for_the_others() -> None:
    async def main() -> None:
        turns, seen = LoopTurns(), list[str]()

        def again() -> None:
            seen.append("first")
            turns.add(partial(seen.append, "again"))

        turns.add(again)
        turns.add(partial(seen.append, "second"))
        for _ in range(4):
            await asyncio.sleep(0)
        assert seen == ["first", "second", "again"]

    asyncio.run(main())


def test_a_cancelled_wait_leaves_its_turn_and_the_next_one_goes_on() -> None:
    async def main() -> None:
        turns = LoopTurns()
        async with anyio.create_task_group() as tasks:
            with anyio.CancelScope() as scope:
                scope.cancel()
                await turns.wait()
            tasks.start_soon(turns.wait)
        await turns.wait()

    anyio.run(main)
