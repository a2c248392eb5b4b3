"""The event loop that serves all blocking calls of a process, in a thread of its own.

It starts with the first call.  Everything of the engine happens in its thread, so signal handlers, which Python runs in
the main thread between any two steps, can never leave a write half done: they interrupt the waiting only.

A process that was forked gets a loop of its own; handles of its parent say so when they are used.  When the main thread
and every other thread that made calls have ended, what is still open is closed, for a few seconds at most, before
Python takes itself apart.
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
"""How long open handles may take to close when the program ends."""
_CANCELLING_S: Final = 5.0
"""How long an interrupted call may take to stop."""

CloseLast = Callable[[], Coroutine[Any, Any, None]]


class Background:
    """See the module.  Use ``background()``."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._is_over = False
        self._is_ending = False
        self._why = "the event loop of shale.sync was ended: open another handle"
        self._stopping = asyncio.Event()
        self._open: dict[int, CloseLast] = {}
        self._calls: dict[_Outcome[Any], Coroutine[Any, Any, Any]] = {}
        """What callers wait for."""
        self._callers: set[threading.Thread] = set()
        self._noting = threading.RLock()
        self._thread = threading.Thread(target=self._run, name="shale.sync", daemon=True)
        self._thread.start()
        threading.Thread(target=self._stop_after_main, name="shale.sync.exit").start()

    def call(self, work: Coroutine[Any, Any, T], *, undo: Callable[[T], Coroutine[Any, Any, None]] | None = None) -> T:
        """Run a coroutine to its end and return what it returns.

        Args:
            work: not begun yet.
            undo: called with a result that came after the caller was interrupted and that nobody will have.

        Raises:
            InvalidRequestError: the caller is inside an event loop, which it would block.
            ClosedError: the process was forked, or is ending.
        """
        outcome: _Outcome[T] = _Outcome()
        self._calls[outcome] = work  # first of all: whatever is in there when the loop ends is told
        if (why := self._obstacle()) is not None:
            self._calls.pop(outcome, None)
            work.close()
            raise why
        if (caller := threading.current_thread()) not in self._callers:
            self._note(caller)
        try:
            with suppress(RuntimeError):  # the loop was closed meanwhile
                self._loop.call_soon_threadsafe(self._begin, work, outcome)
            outcome.wait()
        except BaseException:
            # A signal handler has raised.  What was begun is stopped before the caller goes on.
            self._interrupt(work, outcome, undo)
            raise
        return outcome.result()

    def at_once(self, work: Callable[[], T]) -> T:
        """Call a function that waits for nothing, in the loop's thread; raises like ``call``."""
        return self.call(_plain(work))

    def soon(self, work: Callable[[], object]) -> None:
        """Call a function in the loop's thread some time; nothing happens once the loop is over."""
        if not self._is_over:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(work)

    def keep(self, handle: object, close: CloseLast) -> None:
        """Close a handle when the program ends, unless ``forget`` is called before."""
        self._open[id(handle)] = close

    def forget(self, handle: object) -> None:
        """It was closed."""
        self._open.pop(id(handle), None)

    @property
    def is_over(self) -> bool:
        """Whether nothing can be called any more."""
        return self._is_over

    @property
    def has_died(self) -> bool:
        """Whether its loop was ended by what some code of the user's raised, and not because the program ends."""
        return self._is_over and not self._is_ending

    def abandon(self) -> None:
        """This is a child of the process whose thread runs the loop."""
        self._is_over = True
        self._why = "the handle was opened before the process was forked: open another one in the child"

    def _obstacle(self) -> Exception | None:
        if asyncio._get_running_loop() is not None:
            return InvalidRequestError("shale.sync would block the running event loop: use shale.Db and its like there")
        return ClosedError(self._why) if self._is_over else None

    def _note(self, caller: threading.Thread) -> None:
        """Remember a thread that makes calls, and forget those that have ended: a program may begin any number."""
        with self._noting:
            self._callers = {thread for thread in self._callers if thread.is_alive()} | {caller}

    def _begin(self, work: Coroutine[Any, Any, T], outcome: "_Outcome[T]") -> None:
        # Its parent is the caller, who waits for it.
        self._calls[outcome] = work
        task = outcome.task = self._loop.create_task(_contained(work, outcome))
        task.add_done_callback(partial(self._ended, work, outcome))

    def _ended(self, work: Coroutine[Any, Any, T], outcome: "_Outcome[T]", task: "asyncio.Task[T]") -> None:
        self._calls.pop(outcome, None)
        work.close()  # it never began, if the task was cancelled at once
        outcome.set(task, self._why)

    def _interrupt(
        self,
        work: Coroutine[Any, Any, T],
        outcome: "_Outcome[T]",
        undo: Callable[[T], Coroutine[Any, Any, None]] | None,
    ) -> None:
        def cancel() -> None:
            if outcome.task is None:  # the signal came before the loop was told
                self._give_up(work, outcome)
                return
            outcome.task.cancel()
            outcome.task.add_done_callback(dispose)

        def dispose(task: "asyncio.Task[T]") -> None:
            if not task.cancelled() and task.exception() is None and undo is not None:
                self._begin(undo(task.result()), _Outcome())

        with suppress(RuntimeError):  # the loop was closed, and nothing is under way
            self._loop.call_soon_threadsafe(cancel)
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

    def _give_up(self, work: Coroutine[Any, Any, T], outcome: "_Outcome[T]") -> None:
        """Nobody will carry this out."""
        self._calls.pop(outcome, None)
        work.close()
        outcome.give_up(self._why)

    async def _until_stopped(self) -> None:
        await self._stopping.wait()
        self._is_over = self._is_ending = True
        self._why = "the program is ending"
        with anyio.move_on_after(_CLOSING_S):
            async with anyio.create_task_group() as closing:
                for close in self._open.values():
                    closing.start_soon(_quietly, close)

    def _stop_after_main(self) -> None:
        """A thread that is no daemon: Python waits for it before it forbids new threads, which closing may need."""
        threading.main_thread().join()
        while users := [thread for thread in tuple(self._callers) if thread.is_alive() and not thread.daemon]:
            users[0].join()
        self.soon(self._stopping.set)
        self._thread.join(2 * _CLOSING_S)


class _Outcome(Generic[T]):
    """Hands the result of a call from one thread to another.  A lock wakes faster than a condition."""

    __slots__ = ("_error", "_locked", "_value", "fatal", "task")

    def __init__(self) -> None:
        self._locked = threading.Lock()
        self._locked.acquire()
        self._value: Any = None
        self._error: BaseException | None = None
        self.task: asyncio.Task[T] | None = None
        self.fatal: BaseException | None = None
        """What would end the loop if it were raised there."""

    def set(self, task: "asyncio.Task[T]", why: str) -> None:
        """The call has ended; ``why`` is the reason if it was cancelled."""
        if self.fatal is not None:
            self._error = self.fatal
        elif task.cancelled():
            self._error = ClosedError(why)
        else:
            self._error = task.exception()
            if self._error is None:
                self._value = task.result()
        self._locked.release()

    def give_up(self, why: str) -> None:
        """The call never began."""
        self._error = ClosedError(why)
        self._locked.release()

    def wait(self, seconds: float = -1) -> None:
        """Wait for it."""
        if self._locked.acquire(timeout=seconds):
            self._locked.release()

    def result(self) -> T:
        """What came out."""
        error = self._error
        if error is None:
            value: T = self._value
            return value
        try:
            raise error
        finally:
            del error  # its traceback holds this frame


async def _contained(work: Coroutine[Any, Any, T], outcome: _Outcome[T]) -> T:
    """Code of the user's that exits (a generator of rows, a store) ends its call and not the loop of everybody."""
    try:
        return await work
    except (KeyboardInterrupt, SystemExit) as error:
        outcome.fatal = error
        raise asyncio.CancelledError from None


async def _plain(work: Callable[[], T]) -> T:
    return work()


async def _quietly(close: CloseLast) -> None:
    """At the end of the program nobody can be told any more, and the store holds what it holds."""
    try:
        await close()
    except ShaleError:
        return


_STARTING = threading.Lock()
_background: Background | None = None
_of_parents: list[Background] = []
"""Kept, because taking a loop apart whose thread stayed in the parent would close what the parent uses."""


def background() -> Background:
    """The loop of this process; started with the first call."""
    global _background  # noqa: PLW0603 - one for the process
    with _STARTING:
        if _background is None or _background.has_died:
            _background = Background()
        return _background


def _after_fork() -> None:
    global _background, _STARTING  # noqa: PLW0603
    _STARTING = threading.Lock()
    if _background is not None:
        _background.abandon()
        _of_parents.append(_background)
        _background = None


os.register_at_fork(after_in_child=_after_fork)
