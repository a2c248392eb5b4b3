"""Slots of a process that several databases share."""

import pytest

from shale.concurrency.signal import WakeEvent
from shale_compactor.worker.job_slots import JobSlots, SlotShare
from tests.unit.compactor.harness import ManualClock

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Shares:
    """Slots, a clock, and shares by name."""

    def __init__(self, limit: int, names: str) -> None:
        self.clock = ManualClock()
        self.slots = JobSlots(limit, self.clock)
        self.wakes = {name: WakeEvent() for name in names}
        self.by_name: dict[str, SlotShare] = {name: self.slots.share(wake) for name, wake in self.wakes.items()}

    async def woken(self) -> str:
        """Return the names of the shares that were woken since the last call."""
        return "".join([name for name, wake in self.wakes.items() if await wake.wait_for(0)])


def test_one_database_may_have_all_slots() -> None:
    shares = Shares(4, "a")
    assert shares.by_name["a"].reserve(9) == 4
    assert shares.slots.held == 4
    assert shares.by_name["a"].reserve(5) == 0


async def test_a_free_slot_goes_to_the_database_with_the_fewest_jobs() -> None:
    """A long backlog does not keep the others waiting."""
    shares = Shares(4, "ab")
    a, b = shares.by_name.values()
    assert a.reserve(100) == 4
    assert b.reserve(3) == 0
    a.release()
    assert "b" in await shares.woken()
    assert a.reserve(97) == 0, "it is the turn of b"
    assert b.reserve(3) == 1
    a.release()
    assert (a.reserve(97), b.reserve(2)) == (0, 1)
    a.release()
    assert [b.reserve(1), a.reserve(97), a.held, b.held] == [0, 1, 2, 2]


async def test_databases_take_turns_where_there_are_fewer_slots() -> None:
    shares = Shares(1, "abc")
    served = []
    for name, share in shares.by_name.items():
        if share.reserve(10):
            served.append(name)
    await shares.woken()
    for _ in range(8):
        shares.by_name[served[-1]].release()
        (name,) = await shares.woken()
        assert shares.by_name[name].reserve(10) == 1
        served.append(name)
    assert "".join(served) == "abcabcabc"


async def test_a_job_that_another_process_took_is_not_waited_for() -> None:
    shares = Shares(1, "abc")
    a, b, c = shares.by_name.values()
    a.reserve(5)
    b.reserve(1)
    c.reserve(1)
    a.release()
    assert await shares.woken() == "b"
    assert b.reserve(0) == 0
    assert await shares.woken() == "c", "the next one in turn"
    assert c.reserve(1) == 1


async def test_a_database_whose_store_hangs_is_passed_over() -> None:
    shares = Shares(1, "ab")
    a, b = shares.by_name.values()
    a.reserve(5)
    b.reserve(1)
    a.release()
    assert await shares.woken() == "b"
    assert a.reserve(5) == 0
    shares.clock.advance(6)
    assert a.reserve(5) == 1
    a.release()
    assert b.reserve(1) == 1, "it has polled again"


async def test_a_database_that_leaves_gives_its_slots_back() -> None:
    shares = Shares(2, "ab")
    a, b = shares.by_name.values()
    a.reserve(2)
    b.reserve(2)
    a.close()
    assert await shares.woken() == "b"
    assert (b.reserve(2), shares.slots.held) == (2, 2)


async def test_another_limit_counts_from_the_next_slot_on() -> None:
    shares = Shares(1, "a")
    (a,) = shares.by_name.values()
    a.reserve(3)
    shares.slots.set_limit(3)
    assert await shares.woken() == "a"
    assert a.reserve(2) == 2
    shares.slots.set_limit(1)
    a.release(2)
    assert a.reserve(5) == 0
    a.release()
    assert a.reserve(5) == 1
