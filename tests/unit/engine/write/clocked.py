"""A write pipeline whose clock only the test moves, and calls that are run step by step."""

from collections.abc import Coroutine, Generator
from dataclasses import replace
from random import Random
from typing import Any

from shale.engine.write.pipeline import WritePipeline
from shale.env import Env, InlineCpu
from shale.iter.merge_operator import MergeOperator
from shale.types import Manifest
from tests.clocks import ManualClock
from tests.unit.engine.writer_parts import Parts, make_parts


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
