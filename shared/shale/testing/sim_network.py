"""The connection of one simulated process to the shared stores.

A request takes effect at the store in one step, after a delay, and its response takes another delay.  Both belong to
the network and not to the process: requests of a frozen or killed process still arrive.
"""

import asyncio
import contextvars
import random  # noqa: TID251 - only the type; the instance is injected
from collections.abc import Callable, Coroutine
from enum import Enum
from typing import Any, Generic, TypeVar

from shale.core.lazy_dataclass import dataclass
from shale.errors import ShaleError, UnavailableError
from shale.store.port import PutMode
from shale.testing.faults import Fault, matches
from shale.testing.sim_ports import SimHost
from shale.testing.swarm import SimOptions

T = TypeVar("T")


class HookPoint(Enum):
    """When a hook runs, from the view of the process."""

    BEFORE = "about to send"
    AFTER = "took effect, not answered yet"


@dataclass(slots=True)
class Hook:
    """An action that runs once, at a certain request of a process."""

    point: HookPoint
    op: str
    key_part: str
    skip: int
    action: Callable[[], None]

    def takes(self, point: HookPoint, op: str, key: str) -> bool:
        """Return whether this is the request, counting the ones to skip."""
        if point is not self.point or not matches(self.op, self.key_part, op, key):
            return False
        self.skip -= 1
        return self.skip < 0


@dataclass(slots=True)
class SimRequest(Generic[T]):
    """A request, its effect at the store, and what invariants hear of it."""

    op: str
    key: str
    effect: Callable[[], Coroutine[Any, Any, T]]
    mode: PutMode | None = None
    data: bytes | None = None
    fault: Fault | None = None
    sent_s: float = 0.0

    notes: bool = True
    """Whether invariants hear of it, if it changes the store."""

    @property
    def mutates(self) -> bool:
        return self.notes and self.op in {"put", "delete", "copy"}


class SimNetwork:
    """The requests of one process to the shared stores, with their delays and faults."""

    def __init__(self, process: SimHost, options: SimOptions, rng: random.Random) -> None:
        self.options = options
        self._process = process
        self._sim = process.sim
        self._rng = rng
        self._hooks: list[Hook] = []
        self._faults: list[Hook] = []
        self._next_fault: Fault | None = None
        self.next_response_s: float | None = None
        """How long the response of the request under way takes; a hook sets it, the response uses it up."""
        self._delays: list[tuple[str, str, float]] = []
        self._commit_sent_s = 0.0

    def hook(self, point: HookPoint, op: str, key_part: str, action: Callable[[], None], *, skip: int = 0) -> None:
        """Run ``action`` at the first request that matches, after skipping some.  ``op`` ``"*"`` is any."""
        self._hooks.append(Hook(point, op, key_part, skip, action))

    def inject(self, fault: Fault, op: str, key_part: str, *, skip: int = 0) -> None:
        """Let one request fail."""

        def chosen() -> None:
            self._next_fault = fault

        self._faults.append(Hook(HookPoint.BEFORE, op, key_part, skip, chosen))

    def delay(self, op: str, key_part: str, seconds: float) -> None:
        """Delay every matching request from now on."""
        self._delays.append((op, key_part, seconds))

    @property
    def has_faults(self) -> bool:
        """Whether an injected fault has not occurred yet."""
        return bool(self._faults)

    def note_commit(self, key: str, mode: PutMode, data: bytes) -> None:
        """Tell invariants that a request to the transactional store has created or changed a file."""
        self._sim.note_mutation(self._process, "put", key, mode, data, sent_s=self._commit_sent_s)

    async def send(self, request: SimRequest[T]) -> T:
        """Send a request and return its answer."""
        self._process.refuse_if_gone()
        request.sent_s = self._sim.loop.time()
        self._run_hooks(HookPoint.BEFORE, request)
        self._disturb()
        while self._process.is_suspended:
            await asyncio.sleep(0)  # parks this task until the process continues
            self._process.refuse_if_gone()
        request.fault = self._fault(request)
        loop = self._sim.loop
        answer: asyncio.Future[T] = loop.create_future()
        self._later(self._way_s() + self._delay_s(request), self._arrive, request, answer)
        return await answer

    def _arrive(self, request: SimRequest[Any], answer: "asyncio.Future[Any]") -> None:
        """Apply the request at the store, unless it was lost with its process or to a fault."""
        if self._process.is_killed and self._rng.random() < 0.5:
            return
        if request.fault is Fault.LATE:
            self._deliver(answer, UnavailableError(f"{request.op} {request.key}: injected timeout"))
            request.fault = None
            self._later(self._rng.uniform(0.0, self.options.slow_s), self._take_effect, request, None)
            return
        if request.fault is Fault.BEFORE:
            outcome: Any = UnavailableError(f"{request.op} {request.key}: injected failure before the effect")
            self._later(self._way_s(), self._deliver, answer, outcome)
            return
        self._take_effect(request, answer)

    def _take_effect(self, request: SimRequest[Any], answer: "asyncio.Future[Any] | None") -> None:
        outcome = self._outcome(request)
        if answer is None:
            return
        if not isinstance(outcome, ShaleError):
            self._run_hooks(HookPoint.AFTER, request)
        self._disturb()
        if request.fault is Fault.AFTER:
            outcome = UnavailableError(f"{request.op} {request.key}: injected loss of the answer")
        self._later(self._way_s(), self._deliver, answer, outcome)

    def _outcome(self, request: SimRequest[Any]) -> Any:
        self._commit_sent_s = request.sent_s
        try:
            result = _at_once(request.effect())
        except ShaleError as error:
            self._sim.note_request(self._process, request.op, request.key, type(error).__name__)
            return error
        self._sim.note_request(self._process, request.op, request.key, "ok")
        if request.mutates:
            self._sim.note_mutation(
                self._process, request.op, request.key, request.mode, request.data, sent_s=request.sent_s
            )
        return result

    def _deliver(self, answer: "asyncio.Future[Any]", outcome: Any) -> None:
        if answer.done():
            return  # the task was cancelled
        if isinstance(outcome, BaseException):
            answer.set_exception(outcome)
        else:
            answer.set_result(outcome)

    def _later(self, delay_s: float, callback: Callable[..., None], *args: Any) -> None:
        loop = self._sim.loop
        loop.call_at(loop.time() + delay_s, self._sim.guarded(callback), *args, context=contextvars.Context())

    def _way_s(self) -> float:
        if self.next_response_s is not None:
            way_s, self.next_response_s = self.next_response_s, None
            return way_s
        if self._rng.random() < self.options.slow:
            return self._rng.uniform(0.0, self.options.slow_s)
        return self._rng.uniform(0.0, self.options.latency_s)

    def _delay_s(self, request: SimRequest[Any]) -> float:
        return sum(seconds for op, part, seconds in self._delays if matches(op, part, request.op, request.key))

    def _fault(self, request: SimRequest[Any]) -> Fault | None:
        for hook in self._faults:
            if hook.takes(HookPoint.BEFORE, request.op, request.key):
                self._faults.remove(hook)
                hook.action()
                chosen, self._next_fault = self._next_fault, None
                return chosen
        draw, options = self._rng.random(), self.options
        for probability, fault in (
            (options.fail_before, Fault.BEFORE),
            (options.fail_after, Fault.AFTER),
            (options.fail_late, Fault.LATE),
        ):
            if draw < probability:
                return fault
            draw -= probability
        return None

    def _run_hooks(self, point: HookPoint, request: SimRequest[Any]) -> None:
        for hook in tuple(self._hooks):
            if hook.takes(point, request.op, request.key):
                self._hooks.remove(hook)
                hook.action()

    def _disturb(self) -> None:
        """Freeze or kill the process at random."""
        if self.options.kill and self._rng.random() < self.options.kill:
            self._process.kill()
        elif self.options.freeze and self._rng.random() < self.options.freeze:
            # Short and long freezes are equally likely: the relevant limits are between seconds and hours.
            self._process.freeze(self.options.freeze_s ** self._rng.random())


def _at_once(request: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits."""
    try:
        request.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("the memory store waited")
