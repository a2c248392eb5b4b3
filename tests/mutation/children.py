"""Forked children that run tests, each with limits of its own."""

import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

MEMORY_BYTES = 8 << 30
"""A mutant that allocates without end must not take the memory of the machine."""


@dataclass
class Child:
    """A forked process; ``answer`` is what its work returned once it has ended, or ``None`` if it was stopped."""

    task: object
    pid: int
    pipe: int
    until_s: float
    received: bytearray = field(default_factory=bytearray)


class Children:
    """Runs work in forks of this process, at most ``count`` at once.

    The process must have a single thread; work that needs a fresh state gets it.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._running: dict[int, Child] = {}

    @property
    def is_full(self) -> bool:
        """Whether no further child may start."""
        return len(self._running) >= self._count

    @property
    def is_idle(self) -> bool:
        """Whether no child is running."""
        return not self._running

    def start(self, task: object, work: Callable[[], bytes], limit_s: float) -> None:
        """Fork; the child runs ``work`` and ends.

        Args:
            task: names the work in what ``ended`` yields.
            work: returns the answer.
            limit_s: seconds of processor time, and a third of the seconds of time, after which it is stopped.
        """
        reads, writes = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            _run_and_exit(work, writes, limit_s)
        os.close(writes)
        self._running[reads] = Child(task, pid, reads, time.monotonic() + 3 * limit_s)

    def ended(self) -> Iterator[tuple[object, bytes | None]]:
        """Wait for children; yield the tasks and answers of those that have ended; ``None``: it was stopped."""
        now_s = time.monotonic()
        until_s = min((child.until_s for child in self._running.values()), default=now_s)
        readable, _, _ = select.select(list(self._running), [], [], max(0.0, until_s - now_s))
        for pipe in readable:
            child = self._running[pipe]
            if data := os.read(pipe, 1 << 20):
                child.received += data
                continue
            yield self._reap(child)
        for child in [each for each in self._running.values() if each.until_s <= time.monotonic()]:
            yield self._reap(child)

    def _reap(self, child: Child) -> tuple[object, bytes | None]:
        os.killpg(child.pid, signal.SIGKILL)  # also what its tests have started
        _, status = os.waitpid(child.pid, 0)
        os.close(child.pipe)
        del self._running[child.pipe]
        return child.task, bytes(child.received) if status == 0 else None


def _run_and_exit(work: Callable[[], bytes], writes: int, limit_s: float) -> None:
    code = 1
    try:
        os.setpgid(0, 0)
        seconds = round(limit_s) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        answer = memoryview(work())
        while answer:
            answer = answer[os.write(writes, answer) :]
        code = 0
    finally:
        os._exit(code)
