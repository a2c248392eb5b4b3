"""A store that injects faults under real time, around any other store.

Requests have a delay before the effect and another before the response.  They fail before the effect
(nothing happened), after it (the lost response), or late (an error now, the effect some requests later, like a put
that a proxy has delayed).  A whole process can freeze: it sends and receives nothing, while its requests in flight
still arrive.  Every choice comes from the ``rng`` that was passed in, so one seed gives one history.

Put it under ``RetryingStore``.  Simulations have ``shale.testing.sim_store``.
"""

import random  # noqa: TID251 - only the type; the instance is injected
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import anyio

from shale.core.bytes_like import BytesLike
from shale.core.lazy_dataclass import dataclass
from shale.errors import ShaleError
from shale.store.adapter_errors import RequestFailed
from shale.store.memory import joined
from shale.store.port import (
    LIST_PAGE,
    OVERWRITE,
    ETag,
    GetResult,
    NotModified,
    ObjectMeta,
    ObjectStore,
    PutMode,
)
from shale.store.wrapper import StoreWrapper, delete_each, next_page
from shale.telemetry.error_types import ErrorType
from shale.testing.faults import Fault, matches

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """How often faults occur.  Probabilities are per request; delays are uniform from 0 to their maximum.

    ``cancelled_put_lands``: how often a put that was cancelled in flight takes effect nevertheless.
    """

    before: float = 0.0
    after: float = 0.0
    late: float = 0.0
    delay_max_s: float = 0.0
    slow: float = 0.0
    slow_max_s: float = 0.0
    cancelled_put_lands: float = 0.0


NO_FAULTS = FaultPlan()


@dataclass(frozen=True, slots=True)
class StoreRequest:
    """One request, as rules and observers see it.  ``op`` is the method's name in the port."""

    op: str
    key: str
    mode: PutMode | None = None


@dataclass(slots=True, kw_only=True)
class Rule:
    """A fault on command: on requests that match, after skipping some, a number of times."""

    fault: Fault | None = None
    op: str | None = None
    key_contains: str = ""
    skip: int = 0
    times: int = 1
    delay_before_s: float = 0.0
    delay_after_s: float = 0.0

    def takes(self, request: StoreRequest) -> bool:
        """Return whether the rule applies to this request, and count it."""
        if self.times <= 0 or not matches(self.op, self.key_contains, request.op, request.key):
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        self.times -= 1
        return True


@dataclass(frozen=True, slots=True)
class _Fate:
    fault: Fault | None
    before_s: float
    after_s: float


class FaultyStore(StoreWrapper):
    """``store`` with the faults that one process experiences."""

    def __init__(self, store: ObjectStore, rng: random.Random, plan: FaultPlan = NO_FAULTS) -> None:
        self.plan = plan
        super().__init__(store)
        self._rng = rng
        self._rules: list[Rule] = []
        self._late: list[tuple[int, Callable[[], Awaitable[object]]]] = []
        self._thawed: anyio.Event | None = None
        self._observer: Callable[[StoreRequest], None] | None = None

    def add(self, rule: Rule) -> None:
        """Add a rule; rules are checked in the order of their addition, before random faults."""
        self._rules.append(rule)

    def observe(self, observer: Callable[[StoreRequest], None]) -> None:
        """Call ``observer`` with every request when it is sent."""
        self._observer = observer

    def freeze(self) -> None:
        """Stop sending requests and receiving responses."""
        if self._thawed is None:
            self._thawed = anyio.Event()

    def thaw(self) -> None:
        """Continue after ``freeze``."""
        if self._thawed is not None:
            self._thawed.set()
            self._thawed = None

    async def get(self, key: str) -> GetResult | None:
        """See ``ObjectStore``."""
        return await self._travel(StoreRequest("get", key), lambda: self._store.get(key))

    async def get_if_changed(self, key: str, etag: ETag) -> GetResult | NotModified | None:
        """See ``ObjectStore``."""
        return await self._travel(StoreRequest("get_if_changed", key), lambda: self._store.get_if_changed(key, etag))

    async def get_range(self, key: str, start: int, end: int) -> memoryview | None:
        """See ``ObjectStore``."""
        return await self._travel(StoreRequest("get_range", key), lambda: self._store.get_range(key, start, end))

    async def head(self, key: str) -> ObjectMeta | None:
        """See ``ObjectStore``."""
        return await self._travel(StoreRequest("head", key), lambda: self._store.head(key))

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
        return await self._travel(
            StoreRequest("put", key, mode), lambda: self._store.put(key, body, mode=mode, attributes=attributes)
        )

    async def put_stream(self, key: str, parts: AsyncIterable[BytesLike]) -> None:
        """See ``ObjectStore``.  Its parts are read first, so that a late effect still has them."""
        body = b"".join([bytes(part) async for part in parts])
        await self._travel(StoreRequest("put_stream", key), lambda: self._store.put(key, body))

    async def delete(self, key: str) -> None:
        """See ``ObjectStore``."""
        await self._travel(StoreRequest("delete", key), lambda: self._store.delete(key))

    async def list(self, prefix: str) -> list[ObjectMeta]:
        """See ``ObjectStore``."""
        return await self._travel(StoreRequest("list", prefix), lambda: self._store.list(prefix))

    async def list_pages(self, prefix: str, *, after: str = "") -> AsyncIterator[Sequence[ObjectMeta]]:
        """See ``ObjectStore``.  Every page is a request."""
        pages = self._store.list_pages(prefix, after=after)
        while page := await self._travel(StoreRequest("list", prefix), lambda: next_page(pages)):
            yield page
            if len(page) < LIST_PAGE:
                return

    async def delete_many(self, keys: Sequence[str]) -> Mapping[str, ShaleError]:
        """See ``ObjectStore``.  Every object has faults of its own."""
        return await delete_each(self.delete, keys)

    async def copy(self, source: str, destination: str) -> None:
        """See ``ObjectStore``."""
        await self._travel(StoreRequest("copy", destination), lambda: self._store.copy(source, destination))

    async def _travel(self, request: StoreRequest, effect: Callable[[], Awaitable[T]]) -> T:
        await self._while_frozen()
        await self._run_late()
        fate = self._fate(request)
        if self._observer is not None:
            self._observer(request)
        await self._wait_before(request, fate.before_s, effect)
        if fate.fault is Fault.BEFORE:
            raise RequestFailed(f"{request.op} {request.key}: injected failure before the effect")
        if fate.fault is Fault.LATE:
            self._late.append((self._rng.randint(1, 4), effect))
            raise RequestFailed(f"{request.op} {request.key}: injected timeout", ErrorType.TIMEOUT)
        result = await effect()
        if fate.after_s:
            await anyio.sleep(fate.after_s)
        await self._while_frozen()
        if fate.fault is Fault.AFTER:
            raise RequestFailed(f"{request.op} {request.key}: injected failure after the effect", ErrorType.TIMEOUT)
        return result

    async def _wait_before(
        self, request: StoreRequest, delay_s: float, effect: Callable[[], Awaitable[object]]
    ) -> None:
        """Delay a request; a cancelled put may take effect nevertheless."""
        if not delay_s:
            return
        try:
            await anyio.sleep(delay_s)
        except anyio.get_cancelled_exc_class():
            if request.op == "put" and self._rng.random() < self.plan.cancelled_put_lands:
                await _ignore_conflict(effect)
            raise

    async def _while_frozen(self) -> None:
        while self._thawed is not None:
            await self._thawed.wait()

    async def _run_late(self) -> None:
        """Count down the late requests and apply those that are due."""
        if not self._late:
            return
        due = [effect for left, effect in self._late if left <= 1]
        self._late = [(left - 1, effect) for left, effect in self._late if left > 1]
        for effect in due:
            await _ignore_conflict(effect)

    def _fate(self, request: StoreRequest) -> _Fate:
        for rule in self._rules:
            if rule.takes(request):
                return _Fate(rule.fault, rule.delay_before_s, rule.delay_after_s)
        plan, rng = self.plan, self._rng
        if plan is NO_FAULTS:
            return _Fate(None, 0.0, 0.0)
        return _Fate(self._chance(), self._delay(rng), self._delay(rng))

    def _chance(self) -> Fault | None:
        draw = self._rng.random()
        for probability, fault in (
            (self.plan.before, Fault.BEFORE),
            (self.plan.after, Fault.AFTER),
            (self.plan.late, Fault.LATE),
        ):
            if draw < probability:
                return fault
            draw -= probability
        return None

    def _delay(self, rng: random.Random) -> float:
        if rng.random() < self.plan.slow:
            return rng.uniform(0, self.plan.slow_max_s)
        return rng.uniform(0, self.plan.delay_max_s) if self.plan.delay_max_s else 0.0


async def _ignore_conflict(effect: Callable[[], Awaitable[object]]) -> None:
    """Apply a request whose caller no longer waits."""
    with anyio.CancelScope(shield=True):
        try:
            await effect()
        except ShaleError:
            return
