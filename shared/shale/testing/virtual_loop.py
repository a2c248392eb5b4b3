"""An event loop whose clock jumps to the next timer, so that hours take milliseconds and one seed gives one history.

It has no sockets, no threads and no wall clock.  A handle that belongs to a suspended process is parked instead of
run: that is how a simulated process freezes between any two of its steps, timers included.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from typing import Any, Protocol, TypeVar

from anyio._backends import _asyncio as anyio_backend

T = TypeVar("T")
STEPS_PER_INSTANT_MAX = 200_000


class Suspendable(Protocol):
    """A process as the loop sees it."""

    @property
    def is_suspended(self) -> bool:
        """Whether its handles must wait."""
        ...

    @property
    def parked(self) -> deque[asyncio.Handle]:
        """Where they wait."""
        ...


PROCESS: ContextVar[Suspendable | None] = ContextVar("process", default=None)
"""The process that a task and its handles belong to; every task inherits it from its creator."""


class LivelockError(Exception):
    """A task runs for ever without waiting."""


class VirtualLoop(asyncio.BaseEventLoop):
    """The event loop of a simulation."""

    def __init__(self) -> None:
        super().__init__()
        self._now_s = 0.0
        self._deadline_s = 0.0
        self._steps_at_this_instant = 0
        self.is_idle = False
        self._ready: deque[asyncio.Handle]
        self._timers: list[tuple[float, asyncio.TimerHandle]] = []

    def time(self) -> float:
        """Seconds since the simulation began."""
        return self._now_s

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """See ``AbstractEventLoop``.  Timers are ordered by plain numbers, which is much cheaper than by handles."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, timer))
        return timer

    def run_until(self, deadline_s: float) -> None:
        """Run until the clock shows ``deadline_s``, nothing is left to do (``is_idle``), or ``stop`` is called."""
        self._deadline_s = deadline_s
        self.is_idle = False
        self.run_forever()

    def stop_if_running(self) -> None:
        """Let ``run_until`` return; between two runs there is nothing to stop."""
        if self.is_running():
            self.stop()

    def unpark(self, handles: deque[asyncio.Handle]) -> None:
        """Let parked handles run now, in the order in which they became due."""
        self._ready.extend(handles)
        handles.clear()

    def _run_once(self) -> None:
        if not self._ready and not self._jump():
            self.stop()
            return
        ready = self._ready
        for _ in range(len(ready)):
            handle: Any = ready.popleft()
            if handle._cancelled:
                continue
            process = handle._context.get(PROCESS)
            if process is not None and process.is_suspended:
                process.parked.append(handle)
                continue
            self._steps_at_this_instant += 1
            handle._run()
            if self._stopping:  # type: ignore[attr-defined]
                return
        if self._steps_at_this_instant > STEPS_PER_INSTANT_MAX:
            self._steps_at_this_instant = 0
            raise LivelockError(f"{STEPS_PER_INSTANT_MAX} steps at {self._now_s} s without waiting for anything")

    def _jump(self) -> bool:
        """Move the clock to the next timer and make it ready; false at the deadline or without any timer."""
        timers: list[Any] = self._timers
        while timers and timers[0][1]._cancelled:
            heapq.heappop(timers)
        if not timers or timers[0][0] > self._deadline_s:
            self.is_idle = not timers
            self._now_s = max(self._now_s, self._deadline_s)
            return False
        if timers[0][0] > self._now_s:
            self._now_s = timers[0][0]
            self._steps_at_this_instant = 0
        while timers and timers[0][0] <= self._now_s:
            self._ready.append(heapq.heappop(timers)[1])
        return True

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers are skipped when their time comes."""

    def _write_to_self(self) -> None:
        """Do nothing: there is no selector to wake."""

    def _process_events(self, event_list: list[Any]) -> None:
        """Do nothing: there are no events."""


class _InsertionOrderedSet(dict[T, None]):
    """The part of ``set`` that anyio uses, iterated in the order of insertion instead of memory addresses."""

    def add(self, item: T) -> None:
        self[item] = None

    def remove(self, item: T) -> None:
        del self[item]

    def discard(self, item: T) -> None:
        self.pop(item, None)

    def update(self, items: Iterable[T]) -> None:  # type: ignore[override]
        for item in items:
            self.add(item)

    def difference_update(self, items: Iterable[T]) -> None:
        for item in items:
            self.discard(item)


@contextmanager
def deterministic_cancellation() -> Iterator[None]:
    """Make anyio cancel tasks in the order in which they were started.

    anyio keeps them in sets, whose order depends on memory addresses, and the order in which tasks end can reach the
    store.
    """
    original: Callable[..., None] = anyio_backend.CancelScope.__init__

    def ordered(scope: Any, *args: Any, **kwargs: Any) -> None:
        original(scope, *args, **kwargs)
        scope._child_scopes = _InsertionOrderedSet()
        scope._tasks = _InsertionOrderedSet()

    anyio_backend.CancelScope.__init__ = ordered  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        anyio_backend.CancelScope.__init__ = original  # type: ignore[method-assign]
