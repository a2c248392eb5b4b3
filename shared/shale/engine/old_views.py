"""Views that are not the newest any more and that scans still read: what they keep in memory, and how it is freed.

The memtables of a view stay in memory as long as a scan reads them, also after their flush, when nothing else needs
them.  A scan of the writer holds its sequence number, so it finds the same rows in the L0s that have replaced them: it
can begin again in the newest view, behind its last row, and does so if its memtables do not fit into the budget.
Until then it keeps what it has opened and read ahead, which costs more to read again than memory that nobody wants.
"""

from collections.abc import Collection, Iterator
from weakref import ref

from shale.engine.memtable import Memtable
from shale.engine.pin import Pin
from shale.engine.read_view import ReadView


class OldViews:
    """Those that somebody may still read, oldest first."""

    __slots__ = ("_pins",)

    def __init__(self) -> None:
        self._pins: list[ref[Pin]] = []

    def add(self, view: ReadView) -> None:
        """A newer view has replaced this one."""
        if view.pin.is_used:
            self._pins.append(ref(view.pin))

    def shrink(self, size_bytes_max: int, current: Collection[object]) -> None:
        """Let scans begin again, those of the oldest views first, until memtables fit that only scans keep.

        Args:
            size_bytes_max: what they may have together.
            current: the tables of the newest view, which are in memory anyway.
        """
        pins = [pin for each in self._pins if (pin := each()) is not None and pin.is_used]
        self._pins = [ref(pin) for pin in pins]
        kept = {id(table) for table in current}
        for pin in reversed(pins):
            only_here = {id(table): table.size_bytes for table in _tables(pin) if id(table) not in kept}
            size_bytes_max -= sum(only_here.values())
            if only_here and size_bytes_max < 0:
                pin.begin_again()
            else:
                kept.update(only_here)


def _tables(pin: Pin) -> Iterator[Memtable]:
    for view in pin.views():
        for table in view.tables:
            if isinstance(table, Memtable):
                yield table
