"""The rows that a reader has replayed from the WAL, as tables above the SSTs (docs/protocol.md 5.2, 5.3).

Values only; ``reader_state`` fills them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shale.engine.memtable import Memtable
from shale.engine.row_order import take_rows
from shale.kernels.rows import Rows, concat_rows
from shale.types import Manifest


@dataclass(frozen=True, slots=True)
class Replayed:
    """One table and the last WAL file that is wholly in it or below it."""

    table: Memtable
    consumed_wal_id: int


@dataclass(frozen=True, slots=True)
class Tables:
    """All tables, oldest first; every file up to ``consumed_wal_id`` is in them or in SSTs, up to ``last_seq``."""

    replayed: tuple[Replayed, ...]
    consumed_wal_id: int
    last_seq: int

    @classmethod
    def before_replay(cls, manifest: Manifest) -> "Tables":
        """Nothing replayed yet."""
        return cls((), manifest.replay_after_wal_id, manifest.last_l0_seq)

    def newest_first(self) -> list[Memtable]:
        """What a view takes."""
        return [replayed.table for replayed in reversed(self.replayed)]

    @property
    def size_bytes(self) -> int:
        """Memory of all tables, estimated."""
        return sum(replayed.table.size_bytes for replayed in self.replayed)

    def with_newer(self, table: Memtable, consumed_wal_id: int, *, max_table_bytes: int) -> "Tables":
        """Put a table on top; small ones are joined, so that many polls do not make many tables."""
        if not len(table):
            return Tables(self.replayed, consumed_wal_id, self.last_seq)
        replayed = list(self.replayed)
        while replayed and _should_join(replayed[-1].table, table, max_table_bytes):
            table = Memtable.from_rows(concat_rows([replayed.pop().table.rows(), table.rows()]))
        last_seq = max(self.last_seq, table.last_seq)
        return Tables((*replayed, Replayed(table, consumed_wal_id)), consumed_wal_id, last_seq)

    def above(self, manifest: Manifest) -> "Tables":
        """What stays on top of a newer manifest: the rows that are not in its SSTs."""
        barrier = manifest.last_l0_seq
        kept = []
        for replayed in self.replayed:
            if replayed.table.last_seq <= barrier:
                continue
            table = replayed.table
            if table.first_seq <= barrier:
                table = Memtable.from_rows(_rows_above(table.rows(), barrier))
            kept.append(Replayed(table, replayed.consumed_wal_id))
        if not kept:
            return Tables.before_replay(manifest)
        return Tables(tuple(kept), kept[-1].consumed_wal_id, max(kept[-1].table.last_seq, barrier))


def is_changed(old: Manifest, new: Manifest) -> bool:
    """Whether a reader has to look at other SSTs; a mere checkpoint is no change."""
    return (
        old.tree.last_compacted_l0_sst_view_id != new.tree.last_compacted_l0_sst_view_id
        or new.last_l0_seq > old.last_l0_seq
        or old.tree.compacted != new.tree.compacted
        or old.segments != new.segments
    )


def _should_join(older: Memtable, newer: Memtable, max_table_bytes: int) -> bool:
    # Geometric, like the runs of an LSM tree: a row is copied O(log n) times.
    return older.size_bytes <= 2 * newer.size_bytes and older.size_bytes + newer.size_bytes <= max_table_bytes


def _rows_above(rows: Rows, barrier: int) -> Rows:
    above = np.flatnonzero(rows.seq > np.uint64(barrier))
    return rows if len(above) == len(rows) else take_rows(rows, above)


def total_rows(tables: Sequence[Memtable]) -> int:
    """Rows of all versions in all tables."""
    return sum(map(len, tables))
