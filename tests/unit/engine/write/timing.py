"""Time that tests control: virtual time with writers in it, a clock that a test moves, and calls run step by step."""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from dataclasses import replace
from random import Random
from typing import Any

from shale.engine.location import ConnectedDatabase
from shale.engine.open import open_writer
from shale.engine.options import DbOptions
from shale.engine.write.pipeline import WritePipeline
from shale.engine.write.writer import Writer
from shale.env import Env, InlineCpu
from shale.iter.merge_operator import MergeOperator
from shale.store.memory import MemoryStore
from shale.telemetry.metrics import Metrics
from shale.testing.sim_process import SimClock
from shale.testing.virtual_loop import VirtualLoop
from shale.types import Manifest
from tests.clocks import ManualClock
from tests.unit.engine.writer_parts import Parts, make_parts

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


class VirtualPlace:
    """A database in memory, the time, and the metrics of its writers."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.store = MemoryStore()
        self.env = virtual_env(loop)
        self.metrics = Metrics(db="db")

    async def open(self, **options: Any) -> Writer:
        chosen = DbOptions(**{"flush_interval_s": None, "manifest_poll_interval_s": 1e6, **options})
        return await open_writer(ConnectedDatabase(self.store, "db"), chosen, env=self.env, metrics=self.metrics)

    def counter(self, name: str, **labels: str) -> float:
        return self.metrics.counter(name, **labels).value

    def gauges(self, *names: str) -> list[float]:
        return [self.metrics.gauge(f"slatedb_{name}").value for name in names]


Scenario = Callable[[VirtualPlace], Coroutine[Any, Any, None]]


def run_writers(scenario: Scenario) -> None:
    in_virtual_time(lambda loop: scenario(VirtualPlace(loop)))


async def put(writer: Writer, *keys: bytes) -> int:
    for key in keys:
        await writer.pipeline.put(key, b"value")
    return writer.last_seq


async def make_clocked(
    clock: ManualClock, *, operator: MergeOperator | None = None, new: Manifest | None = None, **options: Any
) -> Parts:
    """Return the parts of a writer whose pipeline has this clock."""
    parts = await make_parts(new=new, **options)
    env = Env(clock, Random(0), InlineCpu())
    pipeline = WritePipeline(
        parts.options, env, parts.manifest, parts.durability, operator=operator, listener=parts.listener
    )
    return replace(parts, env=env, pipeline=pipeline)


class Stepped:
    """A call that runs from wait to wait; ``waits`` counts them."""

    def __init__(self, call: Coroutine[Any, Any, Any]) -> None:
        self._call = call
        self.waits = 0
        self.result: Any = None

    def step(self) -> bool:
        """Run to the next wait, which must be a turn of the loop; return whether there is one."""
        try:
            waits_for = self._call.send(None)
        except StopIteration as end:
            self.result = end.value
            return False
        assert waits_for is None, "it waits for more than a turn of the loop"
        self.waits += 1
        return True

    def __await__(self) -> Generator[Any, None, Any]:
        while self.step():
            yield
        return self.result
