"""A database inside a simulation, whose writer executes one step of a test after another.

The writer is a process of the simulation: it can be killed at any moment, its requests fail and get lost, time jumps,
and compactors and collectors work beside it.  The test itself is plain code: ``run`` returns when the call is done.
"""

import os
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

import anyio

import shale
from shale.compaction.policies.size_tiered import SizeTiered
from shale.errors import ShaleError
from shale.merge_operators import concatenate
from shale.testing.database_invariants import DatabaseInvariants
from shale.testing.simulation import SimProcess, Simulation
from shale.testing.swarm import SimOptions
from shale_compactor.coordinator.options import CoordinatorOptions
from shale_compactor.execution.transforms import Transforms
from tests import cas_selection
from tests.model.driver_records import driver_records
from tests.simulation.compactor.lsm import OPTIONS, ROOT, compactor
from tests.simulation.gc.harness import collect_once, quick

T = TypeVar("T")

_EAGER = replace(
    OPTIONS,
    coordinator=CoordinatorOptions(scheduler=SizeTiered(min_compaction_sources=2, max_compaction_sources=4)),
)
_FOLDING = Transforms(operator=concatenate, operator_name="concatenate")
FAULTS = SimOptions(fail_before=0.05, fail_after=0.05, fail_late=0.02)


class Harness:
    """A database in a simulation, with one writer process."""

    def __init__(self, seed: int, *, faults: bool, settings: dict[str, Any]) -> None:
        url = os.environ.get(cas_selection.SETTINGS["transactional_url"]) if cas_selection.selected() else None
        self.sim = Simulation(
            seed,
            options=FAULTS if faults else SimOptions.calm(),
            records=None if url is None else driver_records(url),
        )
        self.sim.__enter__()
        self.sim.watch(DatabaseInvariants(ROOT))
        self._settings = settings
        self._generation = 0
        self._writer: _WriterProcess | None = None

    def open(self) -> shale.Db:
        """Start a writer."""
        self._generation += 1
        self._writer = _WriterProcess(self.sim, f"writer{self._generation}", self._settings)
        return self.run(self._writer.opened)

    def run(self, work: "Callable[[], Coroutine[Any, Any, T]]") -> T:
        """Run a coroutine in the writer's process and return its result."""
        assert self._writer is not None
        return self._writer.run(work)

    def read(self, key: bytes) -> tuple[int, bytes | None, list[tuple[bytes, bytes]]]:
        """Read in another process: the sequence number of its state, one key, and all rows."""
        process = self.sim.start(_read_all, "reader", role="reader", key=key)
        self.sim.run(minutes=10, until=lambda: process.has_ended)
        self._raise_error_of(process)
        return process.result  # type: ignore[no-any-return]

    @property
    def process(self) -> SimProcess:
        """Return the writer's process."""
        assert self._writer is not None
        return self._writer.process

    def kill(self) -> None:
        """Kill the writer; its requests in flight may still take effect."""
        self.process.kill()

    def leave(self) -> None:
        """Let the writer's process end without an error."""
        assert self._writer is not None
        self._writer.end()

    def now_ms(self) -> int:
        """Return the time of the writer's clock."""
        return self.process.env.clock.now_ms()

    def pass_time(self, seconds: float) -> None:
        """Let simulated time pass, in which all processes run."""
        self.sim.run(seconds=seconds)

    def compact(self) -> None:
        """Run a compactor for a while, then kill it."""
        process = self.sim.start(compactor, "compactor", role="compactor", options=_EAGER, transforms=_FOLDING)
        self.sim.run(seconds=30)
        self._raise_error_of(process)
        process.kill()

    def collect(self) -> None:
        """Run one pass of the collector with a minimum age of 0."""
        process = self.sim.start(collect_once, "collector", role="gc", options=quick())
        self.sim.run(seconds=30, until=lambda: process.has_ended)
        self._raise_error_of(process)
        process.kill()

    def close(self) -> None:
        """End the simulation."""
        self.sim.__exit__()

    def _raise_error_of(self, process: SimProcess) -> None:
        if process.error is not None:
            raise process.error


async def _read_all(process: SimProcess, *, key: bytes) -> tuple[int, bytes | None, list[tuple[bytes, bytes]]]:
    options = {"env": process.env, "metrics": process.metrics, "merge_operator": "concatenate"}
    async with shale.DbReader.open(ROOT, store=process.store, **options) as reader:
        value = await reader.get(key)
        rows = [(row.key, row.value) async for row in reader.scan()]
        return reader.visible_seq, value, rows


class _WriterProcess:
    """A process that executes the coroutines it receives."""

    def __init__(self, sim: Simulation, name: str, settings: dict[str, Any]) -> None:
        self._sim = sim
        self._settings = settings
        self._asked: Callable[[], Coroutine[Any, Any, Any]] | None = None
        self._answer: tuple[Any, BaseException | None] | None = None
        self._woken: anyio.Event | None = None
        self._is_over = False
        self.process = sim.start(self._run_commands, name, role="writer")

    async def opened(self) -> shale.Db:
        process = self.process
        return await shale.Db.open(
            ROOT, store=process.store, env=process.env, metrics=process.metrics, **self._settings
        )

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        self._asked, self._answer = work, None
        if self._woken is not None:
            self._woken.set()
        self._sim.run(hours=1)
        assert self._answer is not None, f"{work} did not come back within an hour: {self.process.waiting_at()}"
        value, error = self._answer
        if error is not None:
            raise error
        return value  # type: ignore[no-any-return]

    def end(self) -> None:
        async def nothing() -> None:
            self._is_over = True

        self.run(nothing)

    async def _run_commands(self, _process: SimProcess) -> None:
        while not self._is_over:
            if self._asked is None:
                self._woken = anyio.Event()
                await self._woken.wait()
            assert self._asked is not None
            work, self._asked = self._asked, None
            try:
                self._answer = (await work(), None)
            except (ShaleError, AssertionError) as error:
                self._answer = (None, error)
            self._sim.pause()
