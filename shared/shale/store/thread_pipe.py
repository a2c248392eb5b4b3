"""A bounded pipe from a task that produces a stream to the thread that uploads it.

The thread iterates over the parts.  The task offers them from a helper thread, because ``offer`` blocks while the pipe
is full.  If the task fails, the iteration fails too, so that the upload is aborted instead of completed.
"""

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from shale.store.adapter_errors import RequestFailed

_POLL_S = 0.1
"""How often each side checks whether the other one gave up; parts are passed at once."""


class ThreadPipe:
    """A bounded queue of parts that can be ended or aborted."""

    def __init__(self, limit: int) -> None:
        self._parts: queue.Queue[bytes | None] = queue.Queue(limit)
        self._given_up = threading.Event()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        while not self._given_up.is_set():
            try:
                part = self._parts.get(timeout=_POLL_S)
            except queue.Empty:
                continue
            if part is None:
                raise StopIteration
            return part
        raise RequestFailed("the source of the stream failed")

    def offer(self, part: bytes | None) -> None:
        """Wait until the pipe is not full and add a part; ``None`` ends the stream."""
        while not self._given_up.is_set():
            try:
                self._parts.put(part, timeout=_POLL_S)
            except queue.Full:
                continue
            return

    @contextmanager
    def given_up_on_error(self) -> Iterator[None]:
        """Abort the pipe if the block raises, so that neither side waits for the other."""
        try:
            yield
        except BaseException:
            self._given_up.set()
            raise
