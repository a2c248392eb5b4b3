"""Durability of a parallel WAL whose files are acknowledged in the order in which their PUTs end.

Source: docs/reference/protocol.md 4.13.
"""

from bisect import bisect_right, insort

from shale.engine.write.durability import DurabilityTracker


class LandedDurability(DurabilityTracker):
    """A tracker that acknowledges a row once its own WAL file is written, although an older file may still be missing.

    ``durable_seq`` still covers only rows below which none is missing.
    """

    __slots__ = ("_in_flight", "_written")

    def __init__(self, seq: int = 0, wal_id: int = 0) -> None:
        super().__init__(seq, wal_id)
        self._in_flight: dict[int, int] = {}
        """The last sequence number of each file in flight, by its first one."""
        self._written: list[tuple[int, int]] = []
        """First and last sequence numbers, ascending, of the written files above ``durable_seq``."""

    def put_begun(self, first_seq: int, last_seq: int) -> None:
        """See ``DurabilityTracker``."""
        self._in_flight[first_seq] = last_seq

    def put_ended(self, first_seq: int, *, is_written: bool) -> None:
        """See ``DurabilityTracker``."""
        last_seq = self._in_flight.pop(first_seq)
        if is_written:
            insort(self._written, (first_seq, last_seq))
        self.changed.notify()

    def advance_durable(self, seq: int) -> None:
        """See ``DurabilityTracker``."""
        super().advance_durable(seq)
        del self._written[: bisect_right(self._written, self.durable_seq, key=lambda file: file[1])]

    async def wait_acknowledged(self, seq: int) -> None:
        """See ``DurabilityTracker``.  After a failure, files in flight are awaited: they may still be written."""
        while self.durable_seq < seq and not self._is_written(seq):
            if self.ended is not None or not self._is_in_flight(seq):
                self._raise()
            await self.changed.wait()

    def _is_written(self, seq: int) -> bool:
        place = bisect_right(self._written, seq, key=lambda file: file[0]) - 1
        return place >= 0 and seq <= self._written[place][1]

    def _is_in_flight(self, seq: int) -> bool:
        return any(first <= seq <= last for first, last in self._in_flight.items())
