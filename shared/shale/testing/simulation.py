"""Deterministic simulation: many processes, one memory store, one virtual clock, one seed.

How to write a test::

    from shale.testing.simulation import SimProcess, Simulation
    from shale.testing.swarm import SimOptions
    from tests.simulation.conftest import simulated

    async def counting_writer(process: SimProcess, *, rounds: int) -> None:
        manifests = ManifestStore(process.store, "db", process.env, process.metrics)
        ...                                    # anything that takes a store and an env; anyio.sleep is virtual

    @simulated                                 # parametrises ``seed``; see tests/simulation/conftest.py
    def test_a_row_of_the_catalogue(seed: int) -> None:
        with Simulation(seed, swarm=True) as sim:              # or options=SimOptions(freeze=0.1)
            sim.watch(DatabaseInvariants("db"))                # invariants, checked after every mutation
            a = sim.start(counting_writer, "a", role="writer", rounds=10)
            a.freeze_before("put", "/manifest/", 3600)         # also freeze_after, kill_before, kill_after, fail
            sim.run(hours=2)                                   # all processes end, or the time is over
            sim.heal()                                         # no more faults, all processes thaw
            sim.start(counting_writer, "b", role="writer", rounds=1)
            sim.run(hours=1)
            sim.check_errors(FencedError)                      # no process ended with another error

``sim.restart_killed(30)`` starts killed processes again, ``sim.kill_all()`` ends them for good, ``sim.at(5, action)``
does something to them after a while, and ``sim.run(until=...)`` stops as soon as a condition holds.

What is simulated: requests are delayed, overtake each other, fail before or after their effect, or late; processes
freeze (tasks and timers alike) and are killed at any request; clocks are skewed.  A killed process runs no clean-up.
An unexpected exception in a process, a broken invariant, a busy loop and a deadlock end the run with
``SimulationError``, whose text names the seed and shows the last mutations.  The same seed gives the same history
(``sim.history.fingerprint``), in any process.  A process may be started while another one runs, also by a process.

Everything below must be deterministic: sort sets before their order can reach the store, use ``process.env`` for
time, chance and ids, no threads.
"""

import contextvars
import os
import random  # noqa: TID251 - the one generator that everything else is derived from
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any, Protocol, Self

from shale.errors import ShaleError
from shale.store.memory import MemoryStore
from shale.store.port import PutMode
from shale.store.transactional.memory import MemoryTransactionalStore
from shale.telemetry.metrics import Metrics
from shale.testing.mutation_log import Mutation, MutationLog
from shale.testing.sim_objects import SimObjects
from shale.testing.sim_process import Main, SimClock, SimProcess
from shale.testing.swarm import SimOptions
from shale.testing.virtual_loop import LivelockError, VirtualLoop, deterministic_cancellation
from shale.types import CasMode

__all__ = ["Invariants", "SimProcess", "Simulation", "SimulationError"]


class _Unscraped(Metrics):
    """Metrics that are never scraped: a hook would keep its whole simulation in memory."""

    def before_scrape(self, hook: Callable[[], None]) -> None:
        """See ``Metrics``."""


STORE_VARIABLE = "SHALE_SIM_CAS"
"""The environment variable that chooses how simulated databases create files: ``native`` or ``two-phase``."""
_SHARED_METRICS = _Unscraped()
"""One for all simulations, because children are slow to make."""
_CLOSING_S = 1e5
_CLOSING_ROUNDS = 10


class SimulationError(AssertionError):
    """The simulated system broke an invariant."""


class Invariants(Protocol):
    """Invariants that hold after every mutation."""

    def after(self, mutation: Mutation, sim: "Simulation") -> None:
        """Raise ``AssertionError`` if the mutation broke something."""
        ...


class Simulation:
    """Runs processes against one memory store, under a virtual clock.

    Args:
        options: the faults; by default none.
        swarm: draw the faults from the seed.
        tolerates_panic: a ``ProtocolPanic`` ends its process, not the simulation.
        records: the transactional store of a simulation with two-phase creates; by default one in memory, if
            ``STORE_VARIABLE`` says so.

    Attributes:
        unannounced: files with a commit record whose staged object was gone already; invariants hear of their copy.
    """

    def __init__(
        self,
        seed: int,
        *,
        options: SimOptions | None = None,
        swarm: bool = False,
        tolerates_panic: bool = False,
        records: MemoryTransactionalStore | None = None,
    ) -> None:
        self.seed = seed
        self.rng = random.Random(f"{seed}/simulation")
        drawn = SimOptions.swarm(random.Random(f"{seed}/swarm")) if swarm else SimOptions.calm()
        self.options = options if options is not None else drawn
        self.tolerates_panic = tolerates_panic
        self.loop = VirtualLoop()
        self.memory = MemoryStore(SimClock(self.loop), supports_attributes=self.options.attributes)
        self.records = records if records is not None else MemoryTransactionalStore()
        self.two_phase = records is not None or os.environ.get(STORE_VARIABLE) == CasMode.TWO_PHASE
        self.stored = SimObjects(self.memory, self.records, two_phase=self.two_phase)
        self.unannounced: set[str] = set()
        self.history = MutationLog()
        self.metrics: Metrics = _SHARED_METRICS
        self.processes: list[SimProcess] = []
        self.invariants: list[Invariants] = []
        self._failure: BaseException | None = None
        self._on_death: list[Callable[[SimProcess], None]] = []
        self._stack = ExitStack()
        self._until: Callable[[], bool] | None = None
        self._actions_pending = 0
        self._is_closing = False

    def __enter__(self) -> Self:
        self._stack.enter_context(deterministic_cancellation())
        self.loop.set_exception_handler(self._on_loop_error)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def watch(self, *rules: Invariants) -> None:
        """Check invariants after every mutation from now on."""
        self.invariants.extend(rules)

    def start(self, main: Main, name: str = "", *, role: str | None = None, **options: Any) -> SimProcess:
        """Start ``main(process, **options)`` as a process.

        Args:
            role: ``writer``, ``compactor``, ``worker``, ``gc``, ``reader`` or ``admin``, for the invariants about which
                role may change what; several are joined by ``+``; by default the name of ``main``.
        """
        role = role if role is not None else str(getattr(main, "__name__", "admin"))
        taken = {process.name for process in self.processes}
        name = name or role
        unique = (
            name
            if name not in taken
            else next(candidate for number in range(2, 10**6) if (candidate := f"{name}#{number}") not in taken)
        )
        process = SimProcess(self, unique, role, main, options)
        self.processes.append(process)
        process.begin()
        return process

    def restart_killed(self, after_s: float) -> None:
        """From now on start every killed process again, after up to ``after_s``."""

        def again(dead: SimProcess) -> None:
            delay_s = self.rng.uniform(0.0, after_s)
            name = dead.name.partition("#")[0]
            self.at(delay_s, lambda: self.start(dead._main, name, role=dead.role, **dead._options))

        self._on_death.append(again)

    def kill_all(self) -> None:
        """Kill every process and start none of them again."""
        self._on_death.clear()
        for process in self.running:
            process.kill()

    def at(self, delay_s: float, action: Callable[[], object]) -> None:
        """Run ``action`` after a delay; ``run`` does not end before."""
        self._actions_pending += 1

        def act() -> None:
            self._actions_pending -= 1
            if self._is_closing:
                return
            action()
            self.note_end()

        self.loop.call_at(self.loop.time() + delay_s, self.guarded(act), context=contextvars.Context())

    def run(
        self,
        *,
        hours: float = 0.0,
        minutes: float = 0.0,
        seconds: float = 0.0,
        until: Callable[[], bool] | None = None,
    ) -> None:
        """Run until the time is over, every process has ended, or ``until`` holds.

        ``until`` is asked after every mutation and whenever a process has ended or was killed.

        Raises:
            SimulationError: an invariant is broken, a process failed, or no process can proceed.
        """
        deadline_s = self.loop.time() + hours * 3600 + minutes * 60 + seconds
        self._until = until
        if until is None or not until():
            self._run_loop(deadline_s)
        self._until = None
        self._raise_failure()
        if self.loop.is_idle and any(process.is_running for process in self.processes):
            waiting = "\n".join(_stack_of(process) for process in self.processes if process.is_running)
            raise SimulationError(f"seed {self.seed}: these processes wait for ever:\n{waiting}")

    def pause(self) -> None:
        """Let ``run`` return; a hook calls this to return to the test at a certain request."""
        self.loop.stop_if_running()

    def heal(self, *, thaw: bool = True) -> None:
        """Inject no more faults and thaw every frozen process."""
        self.options = self.options.healed()
        for process in self.processes:
            process.network.options = self.options
            if thaw and not process.is_killed:
                process.thaw()

    def close(self) -> None:
        """End every process, without further requests to the store."""
        self._is_closing = True
        self.invariants.clear()
        self._on_death.clear()
        tasks = [task for process in self.processes if (task := process.close()) is not None]
        for _ in range(_CLOSING_ROUNDS):
            if all(task.done() for task in tasks):
                break
            self._run_loop(self.loop.time() + _CLOSING_S)
            for task in tasks:
                task.cancel()
        self.loop.create_task(self.loop.shutdown_asyncgens())
        self._run_loop(self.loop.time() + _CLOSING_S)
        self.loop.close()
        self._stack.close()

    @property
    def running(self) -> list[SimProcess]:
        """Processes that neither ended nor were killed."""
        return [process for process in self.processes if process.is_running]

    def check_errors(self, *expected: type[ShaleError]) -> None:
        """Assert that every process that ended with an error ended with one of these.

        A mistake that a check stops before it reaches the store is a finding as well.
        """
        for process in self.processes:
            if process.error is not None and not isinstance(process.error, expected):
                raise SimulationError(
                    f"seed {self.seed}: {process.name} ended with {process.error!r}\n{self.history.tail()}"
                ) from process.error

    def objects(self, prefix: str = "") -> dict[str, bytes]:
        """Return the bodies of the objects in the store, by key."""
        return {key: self.stored[key] for key in self.stored if key.startswith(prefix)}

    def note_request(self, process: SimProcess, op: str, key: str, outcome: str) -> None:
        """Record a request that has reached the store."""
        self.history.note_request(self.loop.time(), process.name, op, key, outcome)

    def note_mutation(
        self, process: SimProcess, op: str, key: str, mode: PutMode | None, data: bytes | None, *, sent_s: float
    ) -> None:
        """Record a change of the store and check the invariants."""
        mutation = Mutation(
            index=len(self.history.mutations),
            time_s=self.loop.time(),
            sent_s=sent_s,
            process=process.name,
            role=process.role,
            op=op,
            key=key,
            mode=mode,
            data=data,
        )
        self.history.append(mutation)
        for rules in self.invariants:
            rules.after(mutation, self)
        if self._until is not None and self._until():
            self.loop.stop()

    def note_death(self, process: SimProcess) -> None:
        """Record that a process was killed."""
        for action in self._on_death:
            action(process)
        self.note_end()

    def note_end(self) -> None:
        """Stop the run if nothing is left to do after a process has ended."""
        if self._is_closing:
            return
        if not self._has_work() or (self._until is not None and self._until()):
            self.loop.stop_if_running()

    def note_failure(self, what: str, error: BaseException) -> None:
        """Stop the run because of an error that no fault explains."""
        if self._is_closing:
            return
        if self._failure is None:
            error.add_note(what)
            self._failure = error
        self.loop.stop_if_running()

    def guarded(self, callback: Callable[..., object]) -> Callable[..., None]:
        """Return ``callback`` with its errors ending the simulation instead of being lost in the loop."""

        def call(*args: object) -> None:
            try:
                callback(*args)
            except Exception as error:  # noqa: BLE001 - raised again by ``run``
                self.note_failure("after a mutation", error)

        return call

    def _run_loop(self, deadline_s: float) -> None:
        try:
            self.loop.run_until(deadline_s)
        except LivelockError as error:
            self.note_failure("busy loop", error)

    def _has_work(self) -> bool:
        return self._actions_pending > 0 or any(process.is_running for process in self.processes)

    def _on_loop_error(self, _: object, context: dict[str, Any]) -> None:
        error = context.get("exception") or RuntimeError(str(context.get("message")))
        self.note_failure("in the event loop", error)

    def _raise_failure(self) -> None:
        if self._failure is None:
            return
        failure, self._failure = self._failure, None
        notes = "; ".join(getattr(failure, "__notes__", ()))
        raise SimulationError(
            f"seed {self.seed} at {self.loop.time():.3f} s: {type(failure).__name__}: {failure} ({notes})\n"
            f"{self.options}\n{self.history.tail()}"
        ) from failure


def _stack_of(process: SimProcess) -> str:
    frames: Iterable[Any] = process._task.get_stack() if process._task is not None else ()
    return f"{process.name}: " + " < ".join(f"{frame.f_code.co_qualname}:{frame.f_lineno}" for frame in frames)
