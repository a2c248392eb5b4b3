"""``BytesRange`` and ``BytesBound`` (docs/format.md 2.5)."""

from shale.format.flat_reader import FlatTable
from shale.format.flat_writer import FlatWriter
from shale.format.tables import BYTES_BOUND, BYTES_RANGE
from shale.types import UNBOUNDED, Bound, BoundKind, KeyRange


def write_range(writer: FlatWriter, key_range: KeyRange | None) -> int:
    """A ``BytesRange`` table; 0 for ``None``."""
    if key_range is None:
        return 0
    start = _write_bound(writer, key_range.start)
    end = _write_bound(writer, key_range.end)
    return writer.table(BYTES_RANGE, (start, end))


def read_range(table: FlatTable) -> KeyRange:
    """Read a ``BytesRange`` table.

    Raises:
        CorruptionError: a bound of unknown kind, a key where none belongs or none where one does, a start that
            excludes its key.
    """
    start = _read_bound(table.required_table(0, "BytesRange.start_bound"))
    end = _read_bound(table.required_table(1, "BytesRange.end_bound"))
    if start.kind is BoundKind.EXCLUDED:
        raise table.corrupt("a range starts behind an excluded key")
    return KeyRange(start, end)


def read_optional_range(table: FlatTable, slot: int) -> KeyRange | None:
    """The range in a slot; ``None`` if absent."""
    range_table = table.table(slot)
    return None if range_table is None else read_range(range_table)


def _write_bound(writer: FlatWriter, bound: Bound) -> int:
    return writer.table(BYTES_BOUND, (writer.blob(bound.key), bound.kind))


def _read_bound(table: FlatTable) -> Bound:
    key = table.blob(0)
    kind = table.i8(1)
    if kind == BoundKind.UNBOUNDED and key is None:
        return UNBOUNDED
    if kind in (BoundKind.INCLUDED, BoundKind.EXCLUDED) and key is not None:
        return Bound(BoundKind(kind), key)
    raise table.corrupt(f"bound of kind {kind} {'without' if key is None else 'with'} a key")
