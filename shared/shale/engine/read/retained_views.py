"""Super versions that scans still read after a newer one was published, and how their memory is freed.

The memtables of a view stay in memory as long as a scan reads them, even after their flush.  A scan of the writer holds
its sequence number, so the L0s that replaced the memtables hold the same rows: it can restart in the newest view after
its last row.  It does so only if its memtables exceed the budget, because a restart discards what it has opened and
read ahead.
"""

from collections.abc import Collection, Iterator
from weakref import ref

from shale.engine.memtable.memtable import Memtable
from shale.engine.read.pins import Pin
from shale.engine.read.super_version import SuperVersion


class RetainedViews:
    """The retained views, oldest first."""

    __slots__ = ("_pins",)

    def __init__(self) -> None:
        self._pins: list[ref[Pin]] = []

    def add(self, view: SuperVersion) -> None:
        """Record a view that a newer one has replaced."""
        if view.pin.is_referenced:
            self._pins.append(ref(view.pin))

    def shrink(self, size_bytes_max: int, current: Collection[object]) -> None:
        """Restart scans of the oldest views until the memtables that only scans keep fit into the budget.

        Args:
            size_bytes_max: the budget.
            current: the tables of the newest view, which are in memory anyway.
        """
        pins = [pin for each in self._pins if (pin := each()) is not None and pin.is_referenced]
        self._pins = [ref(pin) for pin in pins]
        kept = {id(table) for table in current}
        for pin in reversed(pins):
            only_here = {id(table): table.size_bytes for table in _tables(pin) if id(table) not in kept}
            size_bytes_max -= sum(only_here.values())
            if only_here and size_bytes_max < 0:
                pin.restart()
            else:
                kept.update(only_here)


def _tables(pin: Pin) -> Iterator[Memtable]:
    for view in pin.views():
        for table in view.tables:
            if isinstance(table, Memtable):
                yield table
