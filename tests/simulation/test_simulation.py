"""The simulation itself: time, freezing, killing, replay, and the violations it must report."""

import gc
import os
import subprocess
import sys
import weakref

import anyio
import anyio.lowlevel
import pytest

from shale.errors import ProtocolPanic
from shale.store.port import CREATE
from shale.testing.faults import Fault
from shale.testing.simulation import SimProcess, Simulation, SimulationError
from shale.testing.swarm import SimOptions
from tests.paths import REPOSITORY
from tests.simulation.compactor.lsm import compactor, writer
from tests.simulation.protocol.effects import Acknowledged, collector, contender, final_value, toy_rules

PLAIN_KEY = pytest.mark.native_only("only numbered files are created with two-phase creates")
INSTANT = SimOptions(latency_s=0.0)


def test_hours_take_no_time() -> None:
    async def sleeper(process: SimProcess) -> float:
        await anyio.sleep(3600)
        return process.env.clock.monotonic_s()

    with Simulation(0) as sim:
        process = sim.start(sleeper)
        sim.run(hours=2)
        assert process.result == 3600.0


@PLAIN_KEY
def test_a_frozen_process_stands_still_while_its_request_arrives() -> None:
    async def putter(process: SimProcess) -> list[float]:
        await process.store.put("key", b"value", mode=CREATE)
        put_s = process.env.clock.monotonic_s()
        await anyio.sleep(1)
        return [put_s, process.env.clock.monotonic_s()]

    with Simulation(0, options=INSTANT) as sim:
        frozen = sim.start(putter, "a")
        frozen.freeze_after("put", "key", 100)
        sim.run(seconds=50)
        assert sim.objects() == {"key": b"value"}
        sim.run(seconds=200)
        assert frozen.result == [100.0, 101.0]
    with Simulation(0, options=INSTANT) as sim:
        frozen = sim.start(putter, "a")
        frozen.freeze_before("put", "key", 100)
        sim.run(seconds=50)
        assert sim.objects() == {}
        sim.run(seconds=200)
        assert frozen.result == [100.0, 101.0]


def test_timers_of_a_frozen_process_wait_for_it() -> None:
    ticks: list[float] = []

    async def ticker(process: SimProcess) -> None:
        for _ in range(3):
            await anyio.sleep(10)
            ticks.append(process.env.clock.monotonic_s())

    with Simulation(0) as sim:
        process = sim.start(ticker)
        sim.at(5, lambda: process.freeze(100))
        sim.run(hours=1)
    assert ticks == [105.0, 115.0, 125.0]


def test_a_killed_process_cleans_nothing_up() -> None:
    async def tidy(process: SimProcess) -> None:
        try:
            await process.store.put("first", b"")
            await anyio.sleep(1000)
        finally:
            with anyio.CancelScope(shield=True):
                await process.store.put("last", b"")

    with Simulation(0, options=INSTANT) as sim:
        process = sim.start(tidy)
        sim.at(10, process.kill)
        sim.run(hours=1)
        assert list(sim.objects()) == ["first"]


@PLAIN_KEY
@pytest.mark.parametrize(("fault", "puts"), [(Fault.BEFORE, 1), (Fault.AFTER, 1), (Fault.LATE, 1)])
def test_the_retry_layer_makes_one_put_of_a_faulty_one(fault: Fault, puts: int) -> None:
    async def putter(process: SimProcess) -> str | None:
        return await process.store.put("key", b"value", mode=CREATE)

    with Simulation(0, options=INSTANT) as sim:
        process = sim.start(putter)
        process.fail("put", "key", fault)
        sim.run(hours=1)
        assert process.error is None
        assert process.result is not None
        assert len(sim.history.mutations) == puts


def test_a_process_that_waits_for_ever_is_reported() -> None:
    async def waiter(process: SimProcess) -> None:
        await anyio.Event().wait()

    with Simulation(0) as sim:
        sim.start(waiter)
        with pytest.raises(SimulationError, match="these processes wait for ever"):
            sim.run(hours=1)


def test_a_busy_process_is_reported() -> None:
    async def spinner(process: SimProcess) -> None:
        while True:
            await anyio.lowlevel.checkpoint()

    with Simulation(0) as sim:
        sim.start(spinner)
        with pytest.raises(SimulationError, match="without waiting"):
            sim.run(hours=1)


def test_mistakes_and_panics_end_the_run_and_errors_of_the_tree_do_not() -> None:
    async def raising(process: SimProcess, error: Exception) -> None:
        async with anyio.create_task_group():
            raise error

    with Simulation(7) as sim:
        sim.start(raising, error=KeyError("oops"))
        with pytest.raises(SimulationError, match="seed 7"):
            sim.run(hours=1)
    with Simulation(0) as sim:
        sim.start(raising, error=ProtocolPanic("broken"))
        with pytest.raises(SimulationError, match="ProtocolPanic"):
            sim.run(hours=1)
    with Simulation(0, tolerates_panic=True) as sim:
        process = sim.start(raising, error=ProtocolPanic("broken"))
        sim.run(hours=1)
        assert isinstance(process.error, ProtocolPanic)


def one_history(seed: int) -> str:
    """Run a busy simulation with every kind of fault."""
    options = SimOptions(
        slow=0.1, fail_before=0.1, fail_after=0.1, fail_late=0.05, freeze=0.01, freeze_s=600, kill=0.01, skew_ms=100
    )
    acks = Acknowledged()
    with Simulation(seed, options=options) as sim:
        sim.watch(toy_rules())
        sim.restart_killed(30)
        for name in ("a", "b", "c"):
            sim.start(contender, name, acks=acks, rounds=10, pause_s=120)
        gc = sim.start(collector, "gc")
        sim.run(hours=3)
        gc.kill()
        sim.run(hours=3)
        acks.check(final_value(sim))
        return sim.history.fingerprint


@pytest.mark.parametrize("seed", [1, 2])
def test_a_seed_replays_exactly(seed: int) -> None:
    assert one_history(seed) == one_history(seed)
    assert one_history(seed) != one_history(seed + 100)


def test_a_seed_replays_in_another_process_with_another_hash_seed() -> None:
    code = "from tests.simulation.test_simulation import one_history; print(one_history(5))"
    root = REPOSITORY
    environment = os.environ | {"PYTHONHASHSEED": "12345", "PYTHONPATH": f"{root}:{root / 'shared'}"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == one_history(5)


def test_a_simulation_is_forgotten_once_it_is_closed() -> None:
    """Thousands of seeds run in one process, so the store of a closed simulation must be freed."""

    def run() -> "weakref.ref[Simulation]":
        with Simulation(1) as sim:
            sim.start(compactor, role="compactor")
            sim.start(writer, role="writer", flushes=4)
            sim.run(minutes=5)
            return weakref.ref(sim)

    forgotten = run()
    gc.collect()
    assert forgotten() is None
