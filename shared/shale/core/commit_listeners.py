"""Tells parts of one process that another part has committed a version, so that they need not wait for their poll.

Polls stay: other processes commit, too, and a listener may miss what another loop commits while its own one ends.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock

from shale.core.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class _Listener:
    """``call`` runs in ``loop`` after each commit of another source."""

    source: object
    call: Callable[[], None]
    loop: asyncio.AbstractEventLoop


class CommitListeners:
    """The listeners of a process, by the place of the versions that they wait for."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._listeners: dict[str, tuple[_Listener, ...]] = {}

    @contextmanager
    def listening(self, place: str, source: object, call: Callable[[], None]) -> Iterator[None]:
        """Call a function in the running event loop after each commit of another source, until the context ends.

        Args:
            place: the store and the directory of the versions.
            source: what makes the listener's own commits, which it knows.
            call: returns at once, as a notification of ``WakeEvent`` does.
        """
        listener = _Listener(source, call, asyncio.get_running_loop())
        with self._lock:
            self._listeners[place] = (*self._listeners.get(place, ()), listener)
        try:
            yield
        finally:
            with self._lock:
                left = tuple(each for each in self._listeners[place] if each is not listener)
                if left:
                    self._listeners[place] = left
                else:
                    del self._listeners[place]

    def notify(self, place: str, source: object) -> None:
        """Call the listeners of a place, except those of the source itself; any thread may call this in a loop."""
        for listener in self._listeners.get(place, ()):
            if listener.source is source:
                continue
            if listener.loop is asyncio.get_running_loop():
                listener.call()
            else:
                with suppress(RuntimeError):  # its loop was closed
                    listener.loop.call_soon_threadsafe(listener.call)
