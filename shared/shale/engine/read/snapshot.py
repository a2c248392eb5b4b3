"""A snapshot: the state of a database at one sequence number, for reading (docs/reference/protocol.md 4.8)."""

from collections.abc import Mapping

from shale.engine.read.read_point import Durability, ReadPoint
from shale.engine.read.reads import Reads, checked_durability
from shale.engine.write.writer import Writer
from shale.errors import ClosedError


class Snapshot(Reads):
    """The state that ``Db.snapshot`` returns: later writes, flushes, compactions and GC passes do not change it.

    It keeps old versions of rows from being dropped, so close it or drop it.  One change does show: a flush or a
    compaction removes rows that have expired.
    """

    __slots__ = ("_held", "_is_closed", "_writer")

    def __init__(self, writer: Writer, seq: int) -> None:
        super().__init__(visible_range=writer.options.enforce_visible_range)
        self._writer = writer
        self._held = writer.active.hold(seq)
        self._is_closed = False

    @property
    def seq(self) -> int:
        """The sequence number of the newest visible commit."""
        return self._held.seq

    async def close(self) -> None:
        """Release the snapshot; later reads fail.  May be called again."""
        self._is_closed = True
        self._writer.views.points.pop(self._held.number, None)
        self._held.close()

    def _read_point(self, durability: Durability) -> ReadPoint:
        if self._is_closed:
            raise ClosedError("the snapshot is closed: take another one")
        writer, held = self._writer, self._held
        writer.check_readable()
        views = writer.views
        point = views.points.get(held.number)
        if point is None:
            point = views.points[held.number] = ReadPoint(views.view, held.seq, views)
        if checked_durability(durability) and writer.durability.durable_seq < self._held.seq:
            return point._replace(max_seq=writer.durability.durable_seq)
        return point

    def _shown_state(self) -> Mapping[str, object]:
        return {
            "state": "closed" if self._is_closed else "open",
            "seq": self.seq,
            "database": self._writer.location.path,
        }

    def _clock_ms(self) -> int:
        return self._writer.clock_ms()
