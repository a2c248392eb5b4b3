"""The outside world, injected: clock, randomness, ids and CPU work.

Nothing else reads a clock, draws a random number or makes an id, so a simulation can replay a history from one seed.
Code waits with anyio; the clock of the event loop is not part of ``Env``.
"""

import random
import time
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Protocol, TypeVar
from uuid import UUID

import anyio.to_thread

from shale.core.commit_listeners import CommitListeners
from shale.core.lazy_dataclass import dataclass
from shale.types import Ulid

if TYPE_CHECKING:
    from ulid import ULIDGenerator

T = TypeVar("T")


class Clock(Protocol):
    """Wall time for ages and stamps, monotonic time for durations."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, UTC; may jump."""
        ...

    def wall_s(self) -> float:
        """The same in seconds."""
        return self.now_ms() / 1000

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary start; never goes back."""
        ...


_STEADY_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Counts while the machine is suspended: a process that slept during a GC pass must see how long it was away."""


class SystemClock(Clock):
    """The machine's clocks."""

    # The function itself: a put reads the time, and a method around it would double the cost.
    wall_s = staticmethod(time.time)  # pyright: ignore[reportAssignmentType] - a method without a body of its own

    def now_ms(self) -> int:
        """See ``Clock``."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """See ``Clock``."""
        return time.clock_gettime(_STEADY_CLOCK)


class Cpu(Protocol):
    """Runs work that would block the loop (beyond some five milliseconds)."""

    async def run(self, work: Callable[[], T]) -> T:
        """Call ``work`` and return its result."""
        ...

    async def load(self, work: Callable[[], object]) -> None:
        """Call ``work``, which only makes later work faster; a cancelled caller does not wait for it."""
        ...


class InlineCpu:
    """Runs work in the calling task: for simulations, which use no threads."""

    async def run(self, work: Callable[[], T]) -> T:
        """See ``Cpu``."""
        return work()

    async def load(self, work: Callable[[], object]) -> None:
        """See ``Cpu``."""
        work()


class ThreadCpu:
    """Runs work in threads; kernels release the GIL there."""

    def __init__(self, threads: int = 2) -> None:
        self._limiter_size = threads
        self._limiter: anyio.CapacityLimiter | None = None

    @property
    def waiting(self) -> int:
        """The number of calls that wait for a thread."""
        return self._limiter.statistics().tasks_waiting if self._limiter is not None else 0

    async def run(self, work: Callable[[], T]) -> T:
        """See ``Cpu``.  Cancellation waits for the thread, because the buffers it uses must stay alive."""
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(self._limiter_size)
        return await anyio.to_thread.run_sync(work, limiter=self._limiter)

    async def load(self, work: Callable[[], object]) -> None:
        """See ``Cpu``.  Not limited: an abandoned call must not take a thread from one that a task waits for."""
        await anyio.to_thread.run_sync(work, abandon_on_cancel=True)


class Ids:
    """Makes ULIDs and UUIDs from a clock and a random source."""

    def __init__(self, clock: Clock, rng: random.Random) -> None:
        self._clock = clock
        self._rng = rng
        self._generator: ULIDGenerator | None = None

    def ulid(self, at_least_ms: int = 0) -> Ulid:
        """Return a fresh ULID whose time is now, or ``at_least_ms`` if that is later."""
        generator = self._generator or self._make_generator()
        return Ulid(int(generator.generate(max(self._clock.now_ms(), at_least_ms))))

    def uuid(self) -> UUID:
        """Return a fresh UUID of version 4."""
        return UUID(int=self._rng.getrandbits(128), version=4)

    def _make_generator(self) -> "ULIDGenerator":
        # Imported with the first id: reading needs none.
        from ulid import PureRandomPolicy, ULIDGenerator

        # Ids of one millisecond need no order, and a counter would make them depend on each other.
        policy = PureRandomPolicy()
        self._generator = ULIDGenerator(clock=self._clock.now_ms, randomness=self._draw, policy=policy)
        return self._generator

    def _draw(self, _timestamp_ms: int) -> bytes:
        return self._rng.getrandbits(80).to_bytes(10, "big")


_PROCESS_COMMITS = CommitListeners()
"""Shared by all environments of this process: a writer and an admin each make their own."""


@dataclass(frozen=True, slots=True)
class Env:
    """The clock, randomness, CPU runner and id source of a process, and its own commits."""

    clock: Clock
    rng: random.Random
    cpu: Cpu
    commits: CommitListeners = field(default_factory=CommitListeners)
    ids: Ids = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", Ids(self.clock, self.rng))

    def with_threads(self, count: int) -> "Env":
        """Return this environment with threads of its own, unless it uses none."""
        return Env(self.clock, self.rng, ThreadCpu(count), self.commits) if isinstance(self.cpu, ThreadCpu) else self

    @classmethod
    def system(cls, *, cpu_threads: int = 2) -> "Env":
        """Return the environment of a real process."""
        return cls(SystemClock(), random.SystemRandom(), ThreadCpu(cpu_threads), _PROCESS_COMMITS)
