"""A snapshot of a reader: one state, served on while the reader itself moves to newer ones."""

from collections.abc import Callable
from dataclasses import replace

from shale.engine.pin import Use
from shale.engine.read_point import Durability, ReadPoint
from shale.engine.reader_state import ReaderState
from shale.engine.reads import Reads, checked_durability
from shale.errors import ClosedError
from shale.types import KeyRange


class ReaderSnapshot(Reads):
    """Made by ``DbReader.snapshot``.  Its state stays protected by the reader's checkpoint until it is closed."""

    __slots__ = ("_clock", "_point", "_use", "seq")

    def __init__(
        self, state: ReaderState, use: Use, clock_ms: Callable[[], int], limits: KeyRange | None = None
    ) -> None:
        super().__init__(limits=limits)
        self.seq = state.visible_seq
        """The newest commit that shows in it."""
        self._point: ReadPoint | None = state.point
        self._use: Use | None = use
        self._clock = clock_ms

    async def close(self) -> None:
        """Let go of it; it cannot be read any more.  May be called again."""
        self._point = self._use = None

    def _read_point(self, durability: Durability) -> ReadPoint:
        if self._point is None:
            raise ClosedError("the snapshot is closed")
        if self._use is not None:
            self._use.pin.check()
        if durability != "memory":
            checked_durability(durability)  # all that a reader sees is durable
        return replace(self._point, keeper=None)  # a newer state would not be the same

    def _clock_ms(self) -> int:
        return self._clock()
