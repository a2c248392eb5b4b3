"""Hands the parts of a stream from a task to the thread that uploads them, a bounded number at a time.

The thread iterates; the task offers, from a helper thread because an offer waits for room.  If the task fails, the
iteration fails too, so that the upload is given up instead of completed.
"""

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from shale.store.failures import RequestFailed

_POLL_S = 0.1
"""How often either side looks whether the other one gave up; parts themselves arrive at once."""


class Handover:
    """A bounded queue of parts with an end, and a way to give up."""

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
        """Wait for room and hand over a part; ``None`` ends the stream."""
        while not self._given_up.is_set():
            try:
                self._parts.put(part, timeout=_POLL_S)
            except queue.Full:
                continue
            return

    @contextmanager
    def given_up_on_error(self) -> Iterator[None]:
        """However the block is left by an exception, nobody waits for anybody afterwards."""
        try:
            yield
        except BaseException:
            self._given_up.set()
            raise
