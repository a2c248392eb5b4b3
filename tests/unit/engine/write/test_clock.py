"""The database's clock: commit times never go back, and a wall clock that is a little slow is awaited."""

from random import Random

import pytest

from shale.engine.write.clock import DbClock
from shale.env import Clock, Env, InlineCpu
from shale.errors import InvalidClockTick
from shale.testing.virtual_loop import VirtualLoop
from tests.unit.engine.write.timing import in_virtual_time


class ReadClock(Clock):
    """A clock with one given wall time for each time it is read."""

    def __init__(self, *times_ms: int) -> None:
        self._times_ms = list(times_ms)

    def now_ms(self) -> int:
        return self._times_ms.pop(0)

    def monotonic_s(self) -> float:
        return 0.0


def clock_that_reads(*times_ms: int, last_tick: int) -> DbClock:
    return DbClock(Env(ReadClock(*times_ms), Random(0), InlineCpu()), last_tick)


@pytest.mark.parametrize(
    ("times_ms", "waited_s"),
    [
        pytest.param([1000], 0, id="the same millisecond"),
        pytest.param([1001], 0, id="later"),
        pytest.param([999, 1000], 0.002, id="slow by a millisecond"),
        pytest.param([600, 1400], 0.8, id="twice the difference"),
        pytest.param([-4000, 1000], 10, id="the longest wait"),
        pytest.param([-3999, 1000], 9.998, id="just below the longest"),
    ],
)
def test_a_slow_clock_is_awaited(times_ms: list[int], waited_s: float) -> None:
    async def scenario(loop: VirtualLoop) -> None:
        clock = clock_that_reads(*times_ms, last_tick=1000)
        assert await clock.tick() == clock.last_tick == times_ms[-1]
        assert loop.time() == pytest.approx(waited_s)

    in_virtual_time(scenario)


def test_a_clock_that_stays_behind_is_an_error_and_changes_nothing() -> None:
    async def scenario(loop: VirtualLoop) -> None:
        clock = clock_that_reads(0, 999, last_tick=1000)
        with pytest.raises(InvalidClockTick, match=r"says 999 ms, but the database has seen 1000 ms"):
            await clock.tick()
        assert (clock.last_tick, loop.time()) == (1000, 2.0)

    in_virtual_time(scenario)
