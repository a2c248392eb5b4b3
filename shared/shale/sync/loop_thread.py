"""The event loop that serves all blocking calls of a process, in a thread of its own.

It starts with the first call.  All engine code runs in its thread.  So a caller may have a running event loop of its
own, as a notebook has; a call blocks that loop while it waits.  Python runs signal handlers in the main thread between
any two steps, so they can only interrupt the waiting and never leave a write half done.

A forked process gets a loop of its own; handles of its parent raise when they are used.  When the main thread and every
other thread that made calls have ended, open handles are closed, within a few seconds, before the interpreter shuts
down.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final, Generic, TypeVar

import anyio

from shale.errors import ClosedError, InvalidRequestError, ShaleError

T = TypeVar("T")

_CLOSING_S: Final = 5.0
"""Limit for closing open handles when the program ends."""
_CANCELLING_S: Final = 5.0
"""Limit for stopping an interrupted call."""

CloseLast = Callable[[], Coroutine[Any, Any, None]]


class LoopThread:
    """See the module.  Use ``loop_thread()``."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._is_over = False
        self._is_ending = False
        self._closed_reason = "the event loop of shale.sync was ended: open another handle"
        self._stopping = asyncio.Event()
        self._open: dict[int, CloseLast] = {}
        self._calls: dict[_CallResult[Any], Coroutine[Any, Any, Any]] = {}
        """What callers wait for."""
        self._callers: set[threading.Thread] = set()
        self._callers_lock = threading.RLock()
        self._thread = threading.Thread(target=self._run, name="shale.sync", daemon=True)
        self._thread.start()
        threading.Thread(target=self._stop_after_main, name="shale.sync.exit").start()

    def call(self, work: Coroutine[Any, Any, T], *, undo: Callable[[T], Coroutine[Any, Any, None]] | None = None) -> T:
        """Run a coroutine to its end and return its result.

        Args:
            work: a coroutine that has not begun.
            undo: called with a result that arrived after the caller was interrupted, and that is therefore lost.

        Raises:
            InvalidRequestError: the caller runs in this loop, which would wait for itself.
            ClosedError: the process was forked, or is ending.
        """
        outcome: _CallResult[T] = _CallResult()
        self._calls[outcome] = work  # before the check below: calls in here are failed when the loop ends
        if (reason := self._refusal()) is not None:
            self._calls.pop(outcome, None)
            work.close()
            raise reason
        if (caller := threading.current_thread()) not in self._callers:
            self._remember_caller(caller)
        try:
            with suppress(RuntimeError):  # the loop was closed in the meantime
                self._loop.call_soon_threadsafe(self._begin, work, outcome)
            outcome.wait()
        except BaseException:
            # A signal handler has raised.  Stop the call before the caller goes on.
            self._interrupt(work, outcome, undo)
            raise
        return outcome.result()

    def call_function(self, work: Callable[[], T]) -> T:
        """Call a function that does not wait in the loop's thread; raises like ``call``."""
        return self.call(_plain(work))

    def post(self, work: Callable[[], object]) -> None:
        """Call a function in the loop's thread later; nothing happens once the loop is over."""
        if not self._is_over:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(work)

    def close_at_exit(self, handle: object, close: CloseLast) -> None:
        """Close a handle when the program ends, unless ``unregister`` is called before."""
        self._open[id(handle)] = close

    def unregister(self, handle: object) -> None:
        """Forget a handle that was closed."""
        self._open.pop(id(handle), None)

    @property
    def is_over(self) -> bool:
        """Whether calls are refused."""
        return self._is_over

    @property
    def has_died(self) -> bool:
        """Whether user code that raised has ended the loop, before the end of the program."""
        return self._is_over and not self._is_ending

    def abandon(self) -> None:
        """Refuse calls in a forked child, which has no thread for the loop."""
        self._is_over = True
        self._closed_reason = "the handle was opened before the process was forked: open another one in the child"

    def _refusal(self) -> Exception | None:
        if asyncio._get_running_loop() is self._loop:
            return InvalidRequestError(
                "shale.sync was called by code that its own event loop runs, such as a merge operator, and would wait "
                "for itself: use the asynchronous API there, or call it in another thread"
            )
        return ClosedError(self._closed_reason) if self._is_over else None

    def _remember_caller(self, caller: threading.Thread) -> None:
        """Remember a thread that makes calls, and forget ended ones: a program may start any number."""
        with self._callers_lock:
            self._callers = {thread for thread in self._callers if thread.is_alive()} | {caller}

    def _begin(self, work: Coroutine[Any, Any, T], outcome: "_CallResult[T]") -> None:
        # The task needs no task group: the caller waits for it.
        self._calls[outcome] = work
        task = outcome.task = self._loop.create_task(_run_contained(work, outcome))
        task.add_done_callback(partial(self._ended, work, outcome))

    def _ended(self, work: Coroutine[Any, Any, T], outcome: "_CallResult[T]", task: "asyncio.Task[T]") -> None:
        self._calls.pop(outcome, None)
        work.close()  # it never began, if the task was cancelled at once
        outcome.set(task, self._closed_reason)

    def _interrupt(
        self,
        work: Coroutine[Any, Any, T],
        outcome: "_CallResult[T]",
        undo: Callable[[T], Coroutine[Any, Any, None]] | None,
    ) -> None:
        def cancel() -> None:
            if outcome.task is None:  # the signal came before the loop began the call
                self._give_up(work, outcome)
                return
            outcome.task.cancel()
            outcome.task.add_done_callback(dispose)

        def dispose(task: "asyncio.Task[T]") -> None:
            if not task.cancelled() and task.exception() is None and undo is not None:
                self._begin(undo(task.result()), _CallResult())

        with suppress(RuntimeError):  # the loop was closed, and nothing is under way
            self._loop.call_soon_threadsafe(cancel)
        if not outcome.has_ended:  # else the interrupted caller may hold the lock, which nothing would release
            outcome.wait(_CANCELLING_S)

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                try:
                    runner.run(self._until_stopped())
                finally:
                    self._is_over = True
        finally:
            for outcome, work in list(self._calls.items()):
                self._give_up(work, outcome)

    def _give_up(self, work: Coroutine[Any, Any, T], outcome: "_CallResult[T]") -> None:
        """Fail a call that the loop will not run."""
        self._calls.pop(outcome, None)
        work.close()
        outcome.give_up(self._closed_reason)

    async def _until_stopped(self) -> None:
        await self._stopping.wait()
        self._is_over = self._is_ending = True
        self._closed_reason = "the program is ending"
        with anyio.move_on_after(_CLOSING_S):
            async with anyio.create_task_group() as closing:
                for close in self._open.values():
                    closing.start_soon(_close_quietly, close)

    def _stop_after_main(self) -> None:
        """Run in a non-daemon thread: Python waits for it before it forbids new threads, which closing may need."""
        threading.main_thread().join()
        while users := [thread for thread in tuple(self._callers) if thread.is_alive() and not thread.daemon]:
            users[0].join()
        self.post(self._stopping.set)
        self._thread.join(2 * _CLOSING_S)


class _CallResult(Generic[T]):
    """Passes the result of a call from one thread to another.  A lock wakes faster than a condition."""

    __slots__ = ("_error", "_locked", "_value", "fatal", "has_ended", "task")

    def __init__(self) -> None:
        self._locked = threading.Lock()
        self._locked.acquire()
        self._value: Any = None
        self._error: BaseException | None = None
        self.has_ended = False
        """Set before the lock is released."""
        self.task: asyncio.Task[T] | None = None
        self.fatal: BaseException | None = None
        """What would end the loop if it were raised there."""

    def set(self, task: "asyncio.Task[T]", reason: str) -> None:
        """Record the end of the call; ``reason`` is the reason if it was cancelled."""
        if self.fatal is not None:
            self._error = self.fatal
        elif task.cancelled():
            self._error = ClosedError(reason)
        else:
            self._error = task.exception()
            if self._error is None:
                self._value = task.result()
        self.has_ended = True
        self._locked.release()

    def give_up(self, reason: str) -> None:
        """Record that the call never began."""
        self._error = ClosedError(reason)
        self.has_ended = True
        self._locked.release()

    def wait(self, seconds: float = -1) -> None:
        """Wait for the end of the call."""
        if self._locked.acquire(timeout=seconds):
            self._locked.release()

    def result(self) -> T:
        """Return the result or raise the error."""
        error = self._error
        if error is None:
            value: T = self._value
            return value
        try:
            raise error
        finally:
            del error  # its traceback holds this frame


async def _run_contained(work: Coroutine[Any, Any, T], outcome: _CallResult[T]) -> T:
    """Let user code that raises SystemExit end its call and not the loop, which other threads share."""
    try:
        return await work
    except (KeyboardInterrupt, SystemExit) as error:
        outcome.fatal = error
        raise asyncio.CancelledError from None


async def _plain(work: Callable[[], T]) -> T:
    return work()


async def _close_quietly(close: CloseLast) -> None:
    """Ignore errors at the end of the program, when no caller is left to handle them."""
    try:
        await close()
    except ShaleError:
        return


_STARTING = threading.Lock()
_loop_thread: LoopThread | None = None
_parent_loops: list[LoopThread] = []
"""Kept alive, because finalizing a loop whose thread stayed in the parent would close the parent's resources."""


def loop_thread() -> LoopThread:
    """Return the loop of this process; it starts with the first call."""
    global _loop_thread  # noqa: PLW0603 - one for the process
    with _STARTING:
        if _loop_thread is None or _loop_thread.has_died:
            _loop_thread = LoopThread()
        return _loop_thread


def _after_fork() -> None:
    global _loop_thread, _STARTING  # noqa: PLW0603
    _STARTING = threading.Lock()
    if _loop_thread is not None:
        _loop_thread.abandon()
        _parent_loops.append(_loop_thread)
        _loop_thread = None


os.register_at_fork(after_in_child=_after_fork)
