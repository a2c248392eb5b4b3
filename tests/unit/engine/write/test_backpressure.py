"""Backpressure alone: which writes wait, their wake-ups, and the metrics."""

import logging
from dataclasses import dataclass
from random import Random
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from shale.engine.options import DbOptions
from shale.engine.write import backpressure
from shale.engine.write.backpressure import Backpressure, delay_s
from shale.engine.write.durability import DurabilityTracker
from shale.env import Env, InlineCpu, SystemClock
from shale.errors import ClosedError, FencedError, WriteStalled
from shale.testing.virtual_loop import VirtualLoop
from tests.unit.engine.write.timing import in_virtual_time, virtual_env

LIMITED = DbOptions(max_unflushed_bytes=100, l0_sst_size_bytes=50)


@dataclass
class Memory:
    """A ``MemoryUsage`` that tests set."""

    unflushed_bytes: int = 0
    is_draining: bool = True
    wal_buffer_bytes: int = 0


def test_a_write_does_not_wait_below_the_limit() -> None:
    async def scenario() -> None:
        pressure = Backpressure(Memory(99), DurabilityTracker(), LIMITED, Env.system())
        await pressure.wait_for_capacity()
        assert (pressure.waits, pressure.is_full) == (0, False)

    anyio.run(scenario)


@pytest.mark.parametrize(
    ("loads", "milliseconds"),
    [
        ((0.0, 1.0), 0),
        ((1.5, 0.0), 1),
        ((0.3, 2.0), 2),
        ((11.0, 5.0), 20),
        ((25.5, 0.0), 49),
        ((0.0, 27.0), 50),
        ((1e9, 0.0), 50),
    ],
)
def test_writes_slow_down_with_the_backlog(loads: tuple[float, float], milliseconds: float) -> None:
    assert 1000 * delay_s(*loads) == pytest.approx(milliseconds)


def test_a_loop_of_writes_sleeps_while_there_is_a_backlog() -> None:
    """Turns of the loop alone do not let threads have the GIL."""

    async def scenario() -> None:
        memory, turns = Memory(), 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await anyio.lowlevel.checkpoint()

        pressure = Backpressure(memory, DurabilityTracker(), LIMITED, Env.system())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(count)
            await pressure.give_way()
            at_once = turns
            memory.unflushed_bytes = 8 << 20
            await pressure.give_way()
            tasks.cancel_scope.cancel()
        assert at_once <= 2 < turns - at_once

    anyio.run(scenario)


@pytest.mark.parametrize(
    ("l0_bytes", "unflushed_bytes", "wal_bytes", "milliseconds"),
    [
        pytest.param(50, 1 << 20, 0, 0, id="the least that counts"),
        pytest.param(50, 2 << 20, 0, 2, id="twice the least"),
        pytest.param(1 << 20, 4 << 20, 0, 0, id="four memtables"),
        pytest.param(1 << 20, 6 << 20, 0, 1, id="six memtables"),
        pytest.param(1 << 20, 0, 64 << 20, 0, id="a usual WAL"),
        pytest.param(1 << 20, 5 << 20, 128 << 20, 2, id="the larger backlog counts"),
    ],
)
def test_how_long_a_write_gives_way(l0_bytes: int, unflushed_bytes: int, wal_bytes: int, milliseconds: float) -> None:
    async def scenario(loop: VirtualLoop) -> None:
        options = DbOptions(l0_sst_size_bytes=l0_bytes, max_unflushed_bytes=1 << 30)
        memory = Memory(unflushed_bytes, wal_buffer_bytes=wal_bytes)
        await Backpressure(memory, DurabilityTracker(), options, virtual_env(loop)).give_way()
        assert 1000 * loop.time() == pytest.approx(milliseconds)

    in_virtual_time(scenario)


@pytest.mark.parametrize(("unflushed_bytes", "is_full"), [(99, False), (100, True), (101, True)])
def test_memory_is_full_at_the_limit(unflushed_bytes: int, *, is_full: bool) -> None:
    assert Backpressure(Memory(unflushed_bytes), DurabilityTracker(), LIMITED, Env.system()).is_full is is_full


@pytest.mark.parametrize("is_draining", [True, False])
def test_a_write_waits_no_longer_than_allowed_and_tells_why(is_draining: bool) -> None:
    async def scenario(loop: VirtualLoop) -> None:
        options = DbOptions(max_unflushed_bytes=100, l0_sst_size_bytes=50, stall_timeout_s=12.5)
        memory, durability = Memory(120), DurabilityTracker()
        pressure = Backpressure(memory, durability, options, virtual_env(loop))
        with pytest.raises(WriteStalled, match=r"12.5 s: 120 bytes .* limit is 100; flushes are slower than writes"):
            await pressure.wait_for_capacity()
        assert loop.time() == 12.5
        durability.stall = "L0 is full"
        with pytest.raises(WriteStalled, match="L0 is full"):
            await pressure.wait_for_capacity()
        assert loop.time() == 25

    async def in_turns() -> None:
        options = DbOptions(max_unflushed_bytes=100, l0_sst_size_bytes=50, stall_timeout_s=0.01)
        pressure = Backpressure(Memory(120, is_draining=False), DurabilityTracker(), options, Env.system())
        with pytest.raises(WriteStalled):
            await pressure.wait_for_capacity()

    if is_draining:
        in_virtual_time(scenario)
    else:
        anyio.run(in_turns)


def lines(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    found: list[Any] = [record.msg for record in caplog.records]
    return [fields for fields in found if fields["event"] == f"writer.backpressure.{event}"]


def test_a_long_wait_warns_at_its_begin_and_every_half_minute(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "shale")

    async def scenario(loop: VirtualLoop) -> None:
        memory, durability = Memory(100), DurabilityTracker()
        pressure = Backpressure(memory, durability, LIMITED, virtual_env(loop))
        await anyio.sleep(10)
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(pressure.wait_for_capacity)
            await anyio.sleep(95)
            memory.unflushed_bytes = 0
            durability.advance_durable(1)
        memory.unflushed_bytes = 100
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pressure.wait_for_capacity)
            await anyio.sleep(2)
            memory.unflushed_bytes = 0
            durability.advance_durable(2)
        assert pressure.waits == 2 * 4 + 1

    in_virtual_time(scenario)
    started, ended = lines(caplog, "started"), lines(caplog, "ended")
    assert [(each["duration_ms"], each["waiting"]) for each in started] == [
        (0, 1), (30_000, 2), (60_000, 2), (90_000, 2), (0, 1),
    ]  # fmt: skip
    assert {(each["unflushed_bytes"], each["limit_bytes"]) for each in started} == {(100, 100)}
    assert [each["duration_ms"] for each in ended] == [95_000, 2000]


@pytest.mark.parametrize(("pause_s", "warnings"), [(0.0, 1), (0.5, 1), (0.9375, 1), (1.0, 2)])
def test_the_next_wait_warns_again_after_a_second(
    pause_s: float, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(loop: VirtualLoop) -> None:
        memory, durability = Memory(), DurabilityTracker()
        pressure = Backpressure(memory, durability, LIMITED, virtual_env(loop))
        for number in range(2):
            memory.unflushed_bytes = 100
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(pressure.wait_for_capacity)
                await anyio.wait_all_tasks_blocked()
                memory.unflushed_bytes = 0
                durability.advance_durable(number + 1)
            await anyio.sleep(pause_s)

    in_virtual_time(scenario)
    assert len(lines(caplog, "started")) == warnings


def test_a_failed_writer_lets_no_write_wait() -> None:
    async def scenario() -> None:
        durability = DurabilityTracker()
        durability.fail(FencedError("fenced"))
        for unflushed_bytes in (0, 100):
            pressure = Backpressure(Memory(unflushed_bytes), durability, LIMITED, Env.system())
            with pytest.raises(FencedError):
                await pressure.wait_for_capacity()
            assert pressure.waits == 0

    anyio.run(scenario)


def test_a_flush_lets_all_waiting_writes_go_on() -> None:
    async def scenario() -> None:
        memory, durability = Memory(100), DurabilityTracker()
        pressure = Backpressure(memory, durability, LIMITED, Env.system())
        done: list[int] = []

        async def write(number: int) -> None:
            await pressure.wait_for_capacity()
            done.append(number)

        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(write, number)
            await anyio.wait_all_tasks_blocked()
            durability.advance_durable(1)  # progress, but the memory is still full
            await anyio.wait_all_tasks_blocked()
            assert not done
            memory.unflushed_bytes = 50
            durability.advance_durable(2)
        assert sorted(done) == [0, 1, 2]
        assert pressure.waits == 6

    anyio.run(scenario)


def test_many_writes_that_wait_for_long_warn_as_one(caplog: pytest.LogCaptureFixture, monkeypatch: Any) -> None:
    monkeypatch.setattr(backpressure, "WARN_INTERVAL_S", 0.05)

    async def scenario() -> None:
        durability = DurabilityTracker()
        pressure = Backpressure(Memory(100), durability, LIMITED, Env(SetClock(), Random(1), InlineCpu()))
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(pressure.wait_for_capacity)
            while pressure.waits < 60:  # each has found the memory full three times
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()

    anyio.run(scenario)
    assert caplog.text.count("writer.backpressure.started") == 1


class SetClock(SystemClock):
    """A clock that stands still."""

    def monotonic_s(self) -> float:
        return 100.0


def test_without_a_flush_under_way_the_memory_is_checked_in_every_turn() -> None:
    async def scenario() -> None:
        memory = Memory(100, is_draining=False)
        pressure = Backpressure(memory, DurabilityTracker(), LIMITED, Env.system())

        async def free() -> None:
            await anyio.lowlevel.checkpoint()
            memory.unflushed_bytes = 0

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(free)
            with anyio.fail_after(60):
                await pressure.wait_for_capacity()

    anyio.run(scenario)


def test_a_close_ends_the_wait() -> None:
    async def scenario() -> None:
        durability = DurabilityTracker()
        pressure = Backpressure(Memory(100), durability, LIMITED, Env.system())
        async with anyio.create_task_group() as tasks:

            async def write() -> None:
                with pytest.raises(ClosedError):
                    await pressure.wait_for_capacity()

            tasks.start_soon(write)
            await anyio.wait_all_tasks_blocked()
            durability.stop_accepting(ClosedError("closed"))

    anyio.run(scenario)
