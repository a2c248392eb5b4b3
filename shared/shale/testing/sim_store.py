"""The connection of one simulated process to the shared store.

A request takes effect at the store in one step, after a delay, and its response takes another delay.  Both belong to
the network and not to the process: requests of a frozen or killed process still arrive.
"""

import asyncio
import contextvars
import random  # noqa: TID251 - only the type; the instance is injected
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any, Generic, TypeVar

from shale.core.bytes_like import BytesLike
from shale.core.lazy_dataclass import dataclass
from shale.errors import ShaleError, UnavailableError
from shale.store.memory import joined
from shale.store.port import OVERWRITE, ETag, GetResult, NotModified, ObjectMeta, PutMode
from shale.store.two_phase.names import namespace_of_boundary, parse_staged_key
from shale.store.wrapper import delete_each
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
class _Request(Generic[T]):
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


class SimStore:
    """An ``ObjectStore`` for one process, over the simulation's memory."""

    def __init__(self, process: SimHost, options: SimOptions, rng: random.Random) -> None:
        self.options = options
        self._process = process
        self._sim = process.sim
        self._memory = process.sim.memory
        self._rng = rng
        self._hooks: list[Hook] = []
        self._faults: list[Hook] = []
        self._next_fault: Fault | None = None
        self.next_response_s: float | None = None
        """How long the response of the request under way takes; a hook sets it, the response uses it up."""
        self._delays: list[tuple[str, str, float]] = []
        self._commit_sent_s = 0.0

    @property
    def url(self) -> str:
        """See ``ObjectStore``."""
        return self._memory.url

    @property
    def supports_attributes(self) -> bool:
        """See ``ObjectStore``."""
        return self._memory.supports_attributes

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

    async def get(self, key: str) -> GetResult | None:
        """See ``ObjectStore``."""
        return await self._send(_Request("get", key, lambda: self._memory.get(key)))

    async def get_if_changed(self, key: str, etag: ETag) -> GetResult | NotModified | None:
        """See ``ObjectStore``."""
        return await self._send(_Request("get", key, lambda: self._memory.get_if_changed(key, etag)))

    async def get_range(self, key: str, start: int, end: int) -> memoryview | None:
        """See ``ObjectStore``."""
        return await self._send(_Request("get_range", key, lambda: self._memory.get_range(key, start, end)))

    async def head(self, key: str) -> ObjectMeta | None:
        """See ``ObjectStore``."""
        return await self._send(_Request("head", key, lambda: self._memory.head(key)))

    async def put(
        self,
        key: str,
        data: BytesLike | Sequence[BytesLike],
        *,
        mode: PutMode = OVERWRITE,
        attributes: Mapping[str, str] | None = None,
    ) -> ETag | None:
        """See ``ObjectStore``."""
        body = joined(data)
        request = _Request(
            "put", key, lambda: self._memory.put(key, body, mode=mode, attributes=attributes), mode, body
        )
        if self._process.sim.two_phase and (
            parse_staged_key(key) is not None or namespace_of_boundary(key) is not None
        ):
            request.op = "stage"
        return await self._send(request)

    async def put_stream(self, key: str, parts: AsyncIterable[BytesLike]) -> None:
        """See ``ObjectStore``; the object appears in one step at the end."""
        await self.put(key, [bytes(part) async for part in parts])

    async def delete(self, key: str) -> None:
        """See ``ObjectStore``."""
        request = _Request("delete", key, lambda: self._memory.delete(key))
        if parse_staged_key(key) is not None:
            request.op = "unstage"
        await self._send(request)

    async def list(self, prefix: str) -> list[ObjectMeta]:
        """See ``ObjectStore``."""
        return await self._send(_Request("list", prefix, lambda: self._memory.list(prefix)))

    async def list_pages(self, prefix: str, *, after: str = "") -> AsyncIterator[Sequence[ObjectMeta]]:
        """See ``ObjectStore``.  Every page is a request, and sees the store as it is then."""
        full = True
        while full:
            page = await self._send(_Request("list", prefix, partial(self._page, prefix, after)))
            full = len(page) == self.options.list_page
            if page:
                after = page[-1].key
                yield page

    async def _page(self, prefix: str, after: str) -> Sequence[ObjectMeta]:
        found = [meta for meta in await self._memory.list(prefix) if meta.key > after]
        return found[: self.options.list_page]

    async def delete_many(self, keys: Sequence[str]) -> Mapping[str, ShaleError]:
        """See ``ObjectStore``.  One by one, so that some deletions may fail."""
        return await delete_each(self.delete, keys)

    async def copy(self, source: str, destination: str) -> None:
        """See ``ObjectStore``."""
        request = _Request("copy", destination, lambda: self._memory.copy(source, destination))
        request.notes = parse_staged_key(source) is None
        await self._send(request)

    async def send_record(self, op: str, key: str, effect: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Send a request to the transactional store, with the same delays and faults."""
        return await self._send(_Request(op, key, effect, notes=False))

    def note_commit(self, key: str, mode: PutMode, data: bytes) -> None:
        """Tell invariants that a request to the transactional store has created or changed a file."""
        self._sim.note_mutation(self._process, "put", key, mode, data, sent_s=self._commit_sent_s)

    async def aclose(self) -> None:
        """See ``ObjectStore``."""

    async def _send(self, request: _Request[T]) -> T:
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

    def _arrive(self, request: _Request[Any], answer: "asyncio.Future[Any]") -> None:
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

    def _take_effect(self, request: _Request[Any], answer: "asyncio.Future[Any] | None") -> None:
        outcome = self._outcome(request)
        if answer is None:
            return
        if not isinstance(outcome, ShaleError):
            self._run_hooks(HookPoint.AFTER, request)
        self._disturb()
        if request.fault is Fault.AFTER:
            outcome = UnavailableError(f"{request.op} {request.key}: injected loss of the answer")
        self._later(self._way_s(), self._deliver, answer, outcome)

    def _outcome(self, request: _Request[Any]) -> Any:
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

    def _delay_s(self, request: _Request[Any]) -> float:
        return sum(seconds for op, part, seconds in self._delays if matches(op, part, request.op, request.key))

    def _fault(self, request: _Request[Any]) -> Fault | None:
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

    def _run_hooks(self, point: HookPoint, request: _Request[Any]) -> None:
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
