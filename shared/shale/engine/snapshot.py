"""A snapshot: the database as it was at one moment, for reading (docs/protocol.md 4.8)."""

from dataclasses import replace

from shale.engine.read_point import Durability, ReadPoint
from shale.engine.reads import Reads, checked_durability
from shale.engine.writer import Writer
from shale.errors import ClosedError


class Snapshot(Reads):
    """Made by ``Db.snapshot``: what is written later does not show in it, whatever is flushed, compacted and collected.

    It keeps old versions from being dropped, so close it, or let go of it.  One thing may go from it: a row that
    expires, as soon as a flush or a compaction has seen that.
    """

    __slots__ = ("_held", "_is_closed", "_writer")

    def __init__(self, writer: Writer, seq: int) -> None:
        super().__init__(limits=writer.options.enforce_visible_range)
        self._writer = writer
        self._held = writer.active.hold(seq)
        self._is_closed = False

    @property
    def seq(self) -> int:
        """The newest commit that shows in it."""
        return self._held.seq

    async def close(self) -> None:
        """Let go of it; it cannot be read any more.  May be called again."""
        self._is_closed = True
        self._writer.views.points.pop(self._held.number, None)
        self._held.close()

    def _read_point(self, durability: Durability) -> ReadPoint:
        if self._is_closed:
            raise ClosedError("the snapshot is closed")
        writer, held = self._writer, self._held
        writer.check_readable()
        views = writer.views
        point = views.points.get(held.number)
        if point is None:
            point = views.points[held.number] = ReadPoint(views.view, held.seq, views)
        if checked_durability(durability) and writer.progress.durable_seq < self._held.seq:
            return replace(point, max_seq=writer.progress.durable_seq)
        return point

    def _clock_ms(self) -> int:
        return self._writer.clock_ms()
