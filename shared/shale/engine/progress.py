"""How far a writer has come, and whether it still is one: what tasks and callers wait for."""

from shale.engine.signal import Signal
from shale.errors import ShaleError


class Progress:
    """Durable frontier, flushed frontier and the first fatal error of one writer.

    ``durable_seq``: everything up to it is in the WAL, or in an L0 that the manifest names.  ``flushed_seq``:
    everything up to it is in an L0 that the manifest names.  After ``fail`` neither moves: a fenced writer
    acknowledges nothing, even if a late PUT succeeds.  ``durable_wal_id``: the last WAL file that is durable; with the
    WAL disabled that is the fence.

    Args:
        seq: where the manifest's L0s end, and
        wal_id: the fence, when the writer begins.
    """

    __slots__ = ("_ended", "changed", "durable_seq", "durable_wal_id", "flushed_seq", "problem")

    def __init__(self, seq: int = 0, wal_id: int = 0) -> None:
        self.durable_seq = seq
        self.flushed_seq = seq
        self.durable_wal_id = wal_id
        self.problem: ShaleError | None = None
        self.changed = Signal()
        self._ended: ShaleError | None = None

    def durable_through(self, seq: int) -> None:
        """Everything up to ``seq`` has become durable."""
        if self.problem is None and seq > self.durable_seq:
            self.durable_seq = seq
            self.changed.notify()

    def flushed_through(self, seq: int) -> None:
        """Everything up to ``seq`` is in the manifest's trees."""
        if self.problem is None and seq > self.flushed_seq:
            self.flushed_seq = seq
            self.changed.notify()

    def fail(self, error: ShaleError) -> None:
        """Remember the first fatal error and wake everybody; later ones change nothing."""
        if self.problem is None:
            self.problem = error
            self.changed.notify()

    def end(self, error: ShaleError) -> None:
        """The tasks have ended, so nothing moves any more: whoever still waits, or will, gets this error."""
        self._ended = error
        self.changed.notify()

    def check(self) -> None:
        """Raise the fatal error, if there is one."""
        if self.problem is not None:
            raise_again(self.problem)

    async def until_failed(self) -> ShaleError:
        """Wait for the fatal error, or the end."""
        while self.problem is None:
            if self._ended is not None:
                return self._ended
            await self.changed.wait()
        return self.problem

    async def until_durable(self, seq: int) -> None:
        """Wait until everything up to ``seq`` is durable.

        Raises:
            ShaleError: the writer failed first; what became of the rows is unknown.
            ClosedError: it was closed without them.
        """
        while self.durable_seq < seq:
            # Not ``_next_change``: thousands wait here at once, and every frame costs each of them.
            if self.problem is not None or self._ended is not None:
                self._raise()
            await self.changed.wait()

    async def until_flushed(self, seq: int) -> None:
        """Wait until everything up to ``seq`` is in the manifest's trees.

        Raises:
            ShaleError: the writer failed first, or was closed.
        """
        while self.flushed_seq < seq:
            await self._next_change()

    async def _next_change(self) -> None:
        self._raise()
        await self.changed.wait()

    def _raise(self) -> None:
        """Raise why there is nothing to wait for any more, if so."""
        self.check()
        if self._ended is not None:
            raise_again(self._ended)


def raise_again(error: ShaleError) -> None:
    """Raise an error that many callers get, each without the traceback of the others."""
    raise error.with_traceback(None)
