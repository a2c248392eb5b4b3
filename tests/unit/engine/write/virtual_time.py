"""Runs scenarios in virtual time: sleeps and time limits take no time, and their lengths can be asserted."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from shale.env import Env, InlineCpu
from shale.testing.sim_process import SimClock
from shale.testing.virtual_loop import VirtualLoop

LIMIT_S = 100_000.0


def in_virtual_time(scenario: Callable[[VirtualLoop], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario to its end; its loop tells the time."""
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    try:
        task = loop.create_task(scenario(loop))
        task.add_done_callback(lambda _: loop.stop())
        loop.run_until(LIMIT_S)
        assert task.done(), "the scenario waits for something that never happens"
        task.result()
    finally:
        loop.close()
        asyncio.set_event_loop(None)


def virtual_env(loop: VirtualLoop, *, skew_ms: int = 0) -> Env:
    """Return an environment whose clock shows the time of the loop."""
    return Env(SimClock(loop, skew_ms), Random(1), InlineCpu())
