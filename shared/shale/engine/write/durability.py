"""How far the writes of one writer have come, and whether the writer still works."""

from collections.abc import Callable

from shale.concurrency.signal import Signal
from shale.errors import ClosedError, ShaleError


class DurabilityTracker:
    """The durable frontier, the flushed frontier and the first fatal error of one writer.

    Rows up to ``durable_seq`` are in the WAL, or in an L0 that the manifest names.  Rows up to ``flushed_seq`` are in
    an L0 that the manifest names.  ``durable_wal_id`` is the last durable WAL file; with the WAL disabled it is the
    fence.  Both frontiers stop at ``fail``: a fenced writer acknowledges nothing, even if a late PUT succeeds.

    Args:
        seq: the newest sequence number in the manifest's L0s.
        wal_id: the WAL file that fences older writers.
    """

    __slots__ = (
        "_closed", "changed", "durable_seq", "durable_wal_id", "ended", "flushed_seq", "problem", "stall",
        "status_changed",
    )  # fmt: skip

    def __init__(self, seq: int = 0, wal_id: int = 0) -> None:
        self.durable_seq = seq
        self.flushed_seq = seq
        self.durable_wal_id = wal_id
        self.problem: ShaleError | None = None
        """The first fatal error."""
        self.stall: str | None = None
        """Why no memtable can be flushed at present, and what to do, for the errors of writes that wait for room."""
        self.changed = Signal()
        """Notified when a frontier moves, the writer fails or closes, or a stall begins or ends."""
        self.status_changed = Signal()
        """Notified when a frontier moves, the writer fails or closes, and when its manifest or segments change."""
        self._closed: ClosedError | None = None
        self.ended: ShaleError | None = None
        """What waiters get once the tasks have ended."""

    @property
    def is_open(self) -> bool:
        """Whether the writer has neither failed nor been closed."""
        return self.problem is None and self._closed is None

    def advance_durable(self, seq: int) -> None:
        """Record that all rows up to ``seq`` are durable."""
        if self.problem is None and seq > self.durable_seq:
            self.durable_seq = seq
            self._notify()

    def advance_flushed(self, seq: int) -> None:
        """Record that all rows up to ``seq`` are in the manifest's trees."""
        if self.problem is None and seq > self.flushed_seq:
            self.flushed_seq = seq
            self.changed.notify()

    def fail(self, error: ShaleError) -> None:
        """Record the first fatal error and wake all waiters; later errors change nothing."""
        if self.problem is None:
            self.problem = error
            self._notify()

    def stop_accepting(self, error: ClosedError) -> None:
        """Refuse new reads and writes with ``error``; flushes of the close may still move the frontiers."""
        self._closed = error
        self.changed.notify()

    def end(self, error: ShaleError) -> None:
        """Raise ``error`` in all present and future waiters: the tasks have ended, so no frontier moves any more."""
        self.ended = error
        self._notify()

    def check(self) -> None:
        """Raise the fatal error, if there is one."""
        if self.problem is not None:
            reraise(self.problem)

    def check_open(self) -> None:
        """Raise the fatal error, or ``ClosedError`` after ``stop_accepting``."""
        self.check()
        if self._closed is not None:
            reraise(self._closed)

    async def wait_failed(self) -> ShaleError:
        """Wait for the fatal error, or for the end of a writer that was closed, and return the error."""
        while self.problem is None:
            if self.ended is not None:
                return self.ended
            await self.changed.wait()
        return self.problem

    async def wait_durable(self, seq: int) -> None:
        """Wait until all rows up to ``seq`` are durable.

        Raises:
            ShaleError: the writer failed first; the outcome of the rows is unknown.
            ClosedError: the writer was closed without flushing them.
        """
        while self.durable_seq < seq:
            # Checked here and not in a helper: thousands of tasks wait here at once, and each pays for every frame.
            if self.problem is not None or self.ended is not None:
                self._raise()
            await self.changed.wait()

    wait_acknowledged = wait_durable
    """Wait until the rows of the commit with a sequence number may be acknowledged as durable."""

    def put_begun(self, first_seq: int, last_seq: int) -> None:
        """Record that the PUT of a WAL file with these rows begins; only ``LandedDurability`` needs it."""

    def put_ended(self, first_seq: int, *, is_written: bool) -> None:
        """Record the end of such a PUT."""

    async def wait_flushed(self, seq: int, is_blocked: Callable[[], bool] | None = None) -> None:
        """Wait until all rows up to ``seq`` are in the manifest's trees.

        Args:
            seq: a sequence number.
            is_blocked: asked before each wait; the wait ends early once it returns ``True``.

        Raises:
            ShaleError: the writer failed first, or was closed.
        """
        while self.flushed_seq < seq:
            self._raise()
            if is_blocked is not None and is_blocked():
                return
            await self.changed.wait()

    def _notify(self) -> None:
        self.changed.notify()
        self.status_changed.notify()

    def _raise(self) -> None:
        self.check()
        if self.ended is not None:
            reraise(self.ended)


def reraise(error: ShaleError) -> None:
    """Raise an error that many callers get, without the tracebacks of the other callers."""
    raise error.with_traceback(None)
