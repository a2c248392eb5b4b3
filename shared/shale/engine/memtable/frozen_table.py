"""Frozen memtables: tables that take no more writes, and what their flush records in the manifest."""

from collections import deque
from enum import Enum

from shale.core.lazy_dataclass import dataclass
from shale.engine.memtable.memtable import Memtable
from shale.format.sequence_tracker import SequenceTracker
from shale.types import Manifest, Sst

ROOT_TREE: tuple[bytes, ...] = (b"",)
"""The segments of a table in a database without a segment extractor."""

_POINT_INTERVAL_S = 60


class UploadState(Enum):
    """The progress of a frozen table's flush."""

    WAITING = "waiting"
    UPLOADING = "uploading"
    UPLOADED = "uploaded"


@dataclass(slots=True, kw_only=True, eq=False)
class FrozenTable:
    """A frozen memtable.  The stamps are set at the freeze and never change; ``state``, ``ssts`` and ``sorted`` do.

    ``replay_after_wal_id``: this table and older ones hold all rows of WAL files up to this id.  ``last_tick``: the
    newest commit time in the table, in milliseconds of the database's clock.  ``sequence_points``: (seq, second) pairs
    for the manifest's sequence tracker.  ``segments``: prefixes of the trees that the rows go to, ascending.
    ``ssts``: the uploaded SSTs with their segment prefixes; retention may drop all rows of a segment.  ``sorted``:
    the table keeps nothing but sorted columns.
    """

    table: Memtable
    first_seq: int
    last_seq: int
    last_tick: int
    replay_after_wal_id: int
    sequence_points: tuple[tuple[int, int], ...] = ()
    segments: tuple[bytes, ...] = ROOT_TREE
    size_bytes: int
    state: UploadState = UploadState.WAITING
    ssts: tuple[tuple[bytes, Sst], ...] = ()
    sorted: bool = False


class FrozenTables:
    """The frozen memtables of a writer, oldest first, and the sequence points of rows in memory.

    Only ``WritePipeline`` adds and retires tables.

    Args:
        manifest: the claimed manifest.
    """

    __slots__ = ("_last_point_s", "_points", "replay_after_wal_id", "rows_total", "tables", "write_bytes_total")

    def __init__(self, manifest: Manifest) -> None:
        self.tables: deque[FrozenTable] = deque()
        self.replay_after_wal_id: int = manifest.replay_after_wal_id
        """The stamp of the youngest frozen table; before the first freeze, the manifest's."""
        self.rows_total = 0
        self.write_bytes_total = 0
        self._points: list[tuple[int, int]] = []
        known = SequenceTracker.decode(manifest.sequence_tracker).points
        self._last_point_s = known[-1][1] if known else 0

    @property
    def size_bytes(self) -> int:
        """Estimated bytes of all frozen tables."""
        return sum(frozen.size_bytes for frozen in self.tables)

    @property
    def sequence_points(self) -> list[tuple[int, int]]:
        """Sequence numbers of rows in memory with the seconds at which they were reached, oldest first."""
        return [*(point for frozen in self.tables for point in frozen.sequence_points), *self._points]

    def record_point(self, seq: int, tick_ms: int) -> None:
        """Record when ``seq`` was reached, at most once a minute; the next frozen table carries the point."""
        second = tick_ms // 1000
        if second - self._last_point_s >= _POINT_INTERVAL_S:
            self._last_point_s = second
            self._points.append((seq, second))

    def append(self, table: Memtable, *, wal_id: int, last_tick: int, segments: tuple[bytes, ...]) -> None:
        """Add a table that takes no more writes.

        Args:
            table: it has rows.
            wal_id: the table and its predecessors hold all rows of WAL files up to this id.
            last_tick: the database's clock, in milliseconds.
            segments: prefixes of the trees that the rows go to, ascending.
        """
        self.tables.append(
            FrozenTable(
                table=table,
                first_seq=table.first_seq,
                last_seq=table.last_seq,
                last_tick=last_tick,
                replay_after_wal_id=wal_id,
                sequence_points=tuple(self._points),
                segments=segments,
                size_bytes=table.size_bytes,
            )
        )
        self._points.clear()
        self.replay_after_wal_id = wal_id
        self.rows_total += len(table)
        self.write_bytes_total += table.size_bytes

    def retire(self, count: int) -> None:
        """Drop the oldest ``count`` tables: the manifest names their rows now."""
        for _ in range(count):
            self.tables.popleft()
