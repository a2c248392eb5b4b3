"""The rows that a reader has replayed from the WAL, as tables above the SSTs (docs/reference/protocol.md 5.2, 5.3).

These are values; ``shale.engine.reader.state`` replays the WAL into them.
"""

from collections.abc import Sequence

import numpy as np

from shale.core.lazy_dataclass import dataclass
from shale.engine.memtable.memtable import ROW_OVERHEAD_BYTES, Memtable
from shale.engine.memtable.row_order import take_rows
from shale.kernels.rows import Rows
from shale.types import Manifest

PICKLED_READER_WAL_GONE = (
    "the pickled reader showed rows of WAL files that have been flushed and collected since: "
    "pickle it again after its next poll (refresh), or open the URL with a checkpoint where it is needed"
)


@dataclass(frozen=True, slots=True)
class ReplayedTable:
    """One table, and the last WAL file whose rows are all in it or below it."""

    table: Memtable
    consumed_wal_id: int


@dataclass(frozen=True, slots=True)
class ReplayedTables:
    """All tables, oldest first; they and the SSTs hold every WAL file up to ``consumed_wal_id``, up to ``last_seq``."""

    replayed: tuple[ReplayedTable, ...]
    consumed_wal_id: int
    last_seq: int

    @classmethod
    def empty_of(cls, manifest: Manifest) -> "ReplayedTables":
        """Return the tables before replay: none."""
        return cls((), manifest.replay_after_wal_id, manifest.last_l0_seq)

    def newest_first(self) -> list[Memtable]:
        """Return the memtables, newest first."""
        return [replayed.table for replayed in reversed(self.replayed)]

    @property
    def size_bytes(self) -> int:
        """The estimated memory of all tables."""
        return sum(replayed.table.size_bytes for replayed in self.replayed)

    def with_rows(self, parts: Sequence[Rows], consumed_wal_id: int, *, max_table_bytes: int) -> "ReplayedTables":
        """Return these tables with one on top; small tables are joined, so that many polls make few tables.

        Args:
            parts: the rows of WAL files, by ascending seq.  They are copied once, with those of the tables that are
                joined: of many rows a second copy would be what a reader has to have room for.
        """
        size_bytes = sum(part.size_bytes + ROW_OVERHEAD_BYTES * len(part) for part in parts)
        if not size_bytes:
            return ReplayedTables(self.replayed, consumed_wal_id, self.last_seq)
        replayed = list(self.replayed)
        joined = list(parts)
        while replayed and _should_join(replayed[-1].table.size_bytes, size_bytes, max_table_bytes):
            older = replayed.pop().table
            joined.insert(0, older.rows())
            size_bytes += older.size_bytes
        table = Memtable.from_rows(*joined)
        last_seq = max(self.last_seq, table.last_seq)
        return ReplayedTables((*replayed, ReplayedTable(table, consumed_wal_id)), consumed_wal_id, last_seq)

    def above(self, manifest: Manifest) -> "ReplayedTables":
        """Return the rows that are not in the SSTs of a newer manifest."""
        barrier = manifest.last_l0_seq
        kept = []
        for replayed in self.replayed:
            if replayed.table.last_seq <= barrier:
                continue
            table = replayed.table
            if table.first_seq <= barrier:
                table = Memtable.from_rows(_rows_above(table.rows(), barrier))
            kept.append(ReplayedTable(table, replayed.consumed_wal_id))
        if not kept:
            return ReplayedTables.empty_of(manifest)
        return ReplayedTables(tuple(kept), kept[-1].consumed_wal_id, max(kept[-1].table.last_seq, barrier))


def needs_new_state(old: Manifest, new: Manifest) -> bool:
    """Return whether the SSTs of two manifests differ; a new checkpoint alone is no change."""
    return (
        old.tree.last_compacted_l0_sst_view_id != new.tree.last_compacted_l0_sst_view_id
        or new.last_l0_seq > old.last_l0_seq
        or old.tree.compacted != new.tree.compacted
        or old.segments != new.segments
    )


def _should_join(older_bytes: int, newer_bytes: int, max_table_bytes: int) -> bool:
    # Geometric, like the runs of an LSM tree: a row is copied O(log n) times.
    return older_bytes <= 2 * newer_bytes and older_bytes + newer_bytes <= max_table_bytes


def _rows_above(rows: Rows, barrier: int) -> Rows:
    above = np.flatnonzero(rows.seq > np.uint64(barrier))
    return rows if len(above) == len(rows) else take_rows(rows, above)
