"""Which scans restart so that flushed memtables do not fill the memory."""

from shale.engine.memtable.memtable import Memtable
from shale.engine.read.pins import PinRef
from shale.engine.read.read_options import ReadOptions
from shale.engine.read.retained_views import RetainedViews
from shale.engine.read.super_version import SuperVersion
from shale.iter.source import RowsSource
from shale.kernels.rows import EMPTY_ROWS
from shale.types import Manifest
from tests.unit.engine.reading import Shelf

TABLE_BYTES = 1000


def table() -> Memtable:
    made = Memtable()
    made.size_bytes = TABLE_BYTES
    return made


class Reading:
    """A view and a scan of it."""

    def __init__(self, *tables: Memtable) -> None:
        self.view = SuperVersion(Manifest(), tables, Shelf().reader, ReadOptions())
        self.acquire = self.view.pin.acquire()
        read_on(self.acquire, self.view)

    @property
    def is_open(self) -> bool:
        return self.acquire.source is not None


def read_on(use: PinRef, view: SuperVersion) -> None:
    use.view, use.source = view, RowsSource(EMPTY_ROWS)


def old_views(*readings: Reading) -> RetainedViews:
    views = RetainedViews()
    for reading in readings:
        views.add(reading.view)
    return views


def test_the_oldest_begin_again_first() -> None:
    first, second, third = table(), table(), table()
    readings = [Reading(first), Reading(second, first), Reading(third, second)]
    views = old_views(*readings)
    views.shrink(3 * TABLE_BYTES, ())
    assert [reading.is_open for reading in readings] == [True, True, True], "they share their tables"
    views.shrink(2 * TABLE_BYTES, ())
    assert [reading.is_open for reading in readings] == [False, False, True]
    read_on(readings[0].acquire, readings[0].view)
    views.shrink(2 * TABLE_BYTES, ())
    assert [reading.is_open for reading in readings] == [False, False, True]


def test_tables_of_the_newest_view_cost_nothing() -> None:
    flushed, frozen = table(), table()
    readings = [Reading(frozen, flushed), Reading(frozen)]
    views = old_views(*readings)
    views.shrink(0, (frozen,))
    assert [reading.is_open for reading in readings] == [False, True]
    views.shrink(-1, ())
    assert not readings[1].is_open


def test_every_scan_of_a_view_begins_again_and_may_be_gone() -> None:
    reading = Reading(table())
    other = reading.view.pin.acquire()
    read_on(other, reading.view)
    views = old_views(reading)
    views.shrink(0, ())
    assert not reading.is_open
    assert other.source is None
    read_on(other, reading.view)
    del other, reading
    views.shrink(0, ())
    assert not views._pins


def test_views_without_readers_are_not_kept() -> None:
    unread = SuperVersion(Manifest(), (table(),), Shelf().reader, ReadOptions())
    views = RetainedViews()
    views.add(unread)
    assert not views._pins
