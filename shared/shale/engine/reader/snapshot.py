"""A snapshot of a reader: one state that stays readable while the reader moves to newer ones."""

from collections.abc import Callable, Mapping

from shale.engine.read.pins import PinRef
from shale.engine.read.read_point import Durability, ReadPoint
from shale.engine.read.reads import Reads, checked_durability
from shale.engine.reader.state import ReaderState
from shale.errors import ClosedError
from shale.types import KeyRange


class ReaderSnapshot(Reads):
    """The state that ``DbReader.snapshot`` returns; the reader's checkpoint protects it until it is closed."""

    __slots__ = ("_clock", "_point", "_ref", "seq")

    def __init__(
        self, state: ReaderState, ref: PinRef, clock_ms: Callable[[], int], visible_range: KeyRange | None = None
    ) -> None:
        super().__init__(visible_range=visible_range)
        self.seq = state.visible_seq
        """The sequence number of the newest visible commit."""
        self._point: ReadPoint | None = state.point
        self._ref: PinRef | None = ref
        self._clock = clock_ms

    async def close(self) -> None:
        """Release the snapshot; later reads fail.  May be called again."""
        self._point = self._ref = None

    def _read_point(self, durability: Durability) -> ReadPoint:
        if self._point is None:
            raise ClosedError("the snapshot is closed: take another one")
        if self._ref is not None:
            self._ref.pin.check()
        if durability != "memory":
            checked_durability(durability)  # every row that a reader sees is durable
        return self._point._replace(view_provider=None)  # the snapshot must not move to a newer state

    def _shown_state(self) -> Mapping[str, object]:
        return {"state": "closed" if self._point is None else "open", "seq": self.seq}

    def _clock_ms(self) -> int:
        return self._clock()
