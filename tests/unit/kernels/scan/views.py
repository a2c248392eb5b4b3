"""States of SSTs in memory, and what a scan of them returns."""

from collections.abc import Sequence

from hypothesis import strategies as st

from shale.engine.memtable.memtable import Memtable
from shale.engine.read.read_options import ReadOptions
from shale.engine.read.super_version import SuperVersion
from shale.engine.scan.cached_rows import WantedRows
from shale.kernels.rows import rows_from_entries
from shale.types import (
    FLAG_CREATE_TS,
    FLAG_EXPIRE_TS,
    FLAG_MERGE,
    FLAG_TOMBSTONE,
    Entry,
    Manifest,
    Row,
    Seq,
    Tree,
)
from tests.unit.kernels.slots import Slots
from tests.unit.kernels.strategies import KEYS, entries, in_order

SEQS = st.integers(0, 30)
BOUNDS = st.none() | KEYS | st.sampled_from([b"", b"kkk", b"z"])
SORTS = st.builds(lambda entry, seq: entry._replace(seq=seq, flags=entry.flags & ~FLAG_MERGE), entries(), SEQS)
ROWS = st.lists(SORTS, min_size=1, max_size=120).map(in_order)
NOW_MS = st.none() | st.integers(0, 1 << 40)


class FakeReader(Slots):
    """A reader of what is in memory."""

    def follow(self, manifest: Manifest) -> None:
        """Take note of nothing."""


def view_of(slots: FakeReader, tables: Sequence[Sequence[Entry]], tree: Tree) -> SuperVersion:
    manifest = Manifest(tree=tree, last_l0_seq=Seq(1 << 40))
    return SuperVersion(
        manifest,
        [Memtable.from_rows(rows_from_entries(rows)) for rows in tables],
        slots,  # type: ignore[arg-type]
        ReadOptions(),
    )


def expected_rows(sources: Sequence[Sequence[Entry]], wanted: WantedRows) -> list[Row]:
    """Merge in plain Python."""
    newest: dict[bytes, Entry] = {}
    for rows in sources:
        for row in rows:
            is_inside = (wanted.start is None or row.key >= wanted.start) and (
                wanted.end is None or row.key < wanted.end
            )
            is_visible = wanted.max_seq is None or row.seq <= wanted.max_seq
            if is_inside and is_visible and (row.key not in newest or row.seq > newest[row.key].seq):
                newest[row.key] = row
    rows = []
    for key in sorted(newest, reverse=wanted.is_reversed):
        row = newest[key]
        expires = row.flags & FLAG_EXPIRE_TS and wanted.now_ms is not None and row.expire_ts <= wanted.now_ms
        if not row.flags & FLAG_TOMBSTONE and not expires:
            times = (
                row.create_ts if row.flags & FLAG_CREATE_TS else None,
                row.expire_ts if row.flags & FLAG_EXPIRE_TS else None,
            )
            rows.append(Row(row.key, row.value, row.seq, *times))
    return rows[: wanted.rows_max]
