"""One process of a simulation: its clock, randomness and connection to the store, and how to freeze and kill it."""

import asyncio
import contextvars
import random  # noqa: TID251 - a generator of its own for every process, seeded by the simulation
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from shale.core.lazy_dataclass import dataclass
from shale.env import Clock, Env, InlineCpu
from shale.errors import ProtocolPanic, ShaleError
from shale.store.retry import RetryingStore
from shale.store.two_phase.store import TwoPhaseStore
from shale.testing.faults import Fault
from shale.testing.sim_network import HookPoint, SimNetwork
from shale.testing.sim_ports import SimWorld
from shale.testing.sim_records import SimRecords
from shale.testing.sim_store import SimStore
from shale.testing.virtual_loop import PROCESS, VirtualLoop

if TYPE_CHECKING:
    from shale.store.port import ObjectStore
    from shale.telemetry.metrics import Metrics

START_MS = 1_700_000_000_000
Main = Callable[..., Awaitable[Any]]


@dataclass(slots=True)
class SimClock(Clock):
    """The loop's time as a wall clock with an error of ``skew_ms``."""

    loop: VirtualLoop
    skew_ms: int = 0

    def now_ms(self) -> int:
        """See ``Clock``."""
        return START_MS + self.skew_ms + int(self.loop.time() * 1000)

    def monotonic_s(self) -> float:
        """See ``Clock``; it counts the time asleep."""
        return self.loop.time()


class SimProcess:
    """The first argument of a process's ``main``, and the handle that a test controls it with.

    Attributes:
        store: the retry layer over the faulty connection to the shared store.
        connection: the same without retries.
        network: the requests below it, to inject faults.
        error: the ``ShaleError`` that ended it, if one did; of a group of errors the first.
        result: what ``main`` returned.
    """

    def __init__(self, sim: SimWorld, name: str, role: str, main: Main, options: dict[str, Any]) -> None:
        seed = f"{sim.seed}/{name}"
        self.sim = sim
        self.name = name
        self.role = role
        self.rng = random.Random(f"{seed}/process")
        faults = random.Random(f"{seed}/faults")
        self.clock = SimClock(sim.loop, faults.randint(-sim.options.skew_ms, sim.options.skew_ms))
        self.env = Env(self.clock, self.rng, InlineCpu())
        self.network = SimNetwork(self, sim.options, faults)
        self.connection: ObjectStore = SimStore(self, self.network)
        if sim.two_phase:
            self.connection = TwoPhaseStore(self.connection, SimRecords(self, self.network), self.env)
        self.store: ObjectStore = RetryingStore(self.connection, self.env)
        self.metrics: Metrics = sim.metrics
        self.parked: deque[asyncio.Handle] = deque()
        self.result: Any = None
        self.error: ShaleError | None = None
        self.is_killed = False
        self.has_ended = False
        self._is_closing = False
        self._frozen_until_s = 0.0
        self._main = main
        self._options = options
        self._task: asyncio.Task[None] | None = None

    @property
    def is_suspended(self) -> bool:
        """Whether the process is frozen, or killed."""
        return not self._is_closing and (self.is_killed or self.sim.loop.time() < self._frozen_until_s)

    @property
    def is_running(self) -> bool:
        """Whether the process has neither ended nor been killed."""
        return not self.has_ended and not self.is_killed

    def freeze(self, seconds: float) -> None:
        """Stop every task and timer for a while; requests in flight still arrive."""
        loop = self.sim.loop
        self._frozen_until_s = max(self._frozen_until_s, loop.time() + seconds)
        loop.call_at(self._frozen_until_s, self._wake, context=contextvars.Context())

    def thaw(self) -> None:
        """Continue at once."""
        self._frozen_until_s = 0.0
        self._wake()

    def kill(self) -> None:
        """End as after SIGKILL: without clean-up or further requests; requests in flight may arrive."""
        if not self.has_ended:
            self.is_killed = True
            self.sim.note_death(self)

    def freeze_before(self, op: str, key_part: str, seconds: float, *, skip: int = 0) -> None:
        """Freeze when the process is about to send the first matching request."""
        self.network.hook(HookPoint.BEFORE, op, key_part, lambda: self.freeze(seconds), skip=skip)

    def freeze_after(self, op: str, key_part: str, seconds: float, *, skip: int = 0) -> None:
        """Freeze when the first matching request has taken effect, without a conflict, before its response arrives."""
        self.network.hook(HookPoint.AFTER, op, key_part, lambda: self.freeze(seconds), skip=skip)

    def kill_before(self, op: str, key_part: str, *, skip: int = 0) -> None:
        """Kill when the process is about to send the first matching request."""
        self.network.hook(HookPoint.BEFORE, op, key_part, self.kill, skip=skip)

    def kill_after(self, op: str, key_part: str, *, skip: int = 0) -> None:
        """Kill when the first matching request has taken effect."""
        self.network.hook(HookPoint.AFTER, op, key_part, self.kill, skip=skip)

    def fail(self, op: str, key_part: str, fault: Fault = Fault.AFTER, *, skip: int = 0) -> None:
        """Let the first matching request fail; by default it takes effect and its response is lost."""
        self.network.inject(fault, op, key_part, skip=skip)

    def waiting_at(self) -> str:
        """Return where the process waits, as the functions that called each other, the outermost first."""
        waiting: Any = self._task.get_coro() if self._task is not None else None
        places = []
        while waiting is not None and (frame := getattr(waiting, "cr_frame", None)) is not None:
            places.append(f"{frame.f_code.co_qualname}:{frame.f_lineno}")
            waiting = waiting.cr_await
        return " > ".join([*places, repr(waiting)])

    def refuse_if_gone(self) -> None:
        """Raise before a request is sent if the simulation is over: clean-up must not reach the store."""
        if self._is_closing:
            raise asyncio.CancelledError("the simulation is over")

    def begin(self) -> None:
        """Start ``main`` in a context of its own."""
        context = contextvars.copy_context()
        context.run(PROCESS.set, self)
        self._task = self.sim.loop.create_task(self._run(), name=self.name, context=context)

    def close(self) -> "asyncio.Task[None] | None":
        """End the process for good and return its task, to wait for."""
        self._is_closing = True
        self._wake()
        if self._task is not None and not self._task.done():
            self._task.cancel()
        return self._task

    async def _run(self) -> None:
        try:
            self.result = await self._main(self, **self._options)
        except asyncio.CancelledError:
            if not self._is_closing:
                raise
        except Exception as error:  # noqa: BLE001 - every error of a process is recorded here, where a test can see it
            if not self._is_closing:
                self._record_error(error)
        finally:
            self.has_ended = True
            self.sim.note_end()

    def _record_error(self, error: Exception) -> None:
        leaves = _leaves(error)
        self.error = next((leaf for leaf in leaves if isinstance(leaf, ShaleError)), None)
        for leaf in leaves:
            if not isinstance(leaf, ShaleError) or (isinstance(leaf, ProtocolPanic) and not self.sim.tolerates_panic):
                self.sim.note_failure(f"process {self.name} failed", leaf)

    def _wake(self) -> None:
        if not self.is_suspended:
            self.sim.loop.unpark(self.parked)


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]
