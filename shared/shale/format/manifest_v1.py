"""Manifests of version 1, which releases before 0.17 wrote (docs/format.md 4.4).  Read only."""

from shale.format.flat_reader import FlatTable
from shale.format.key_ranges import read_optional_range
from shale.format.manifest_parts import (
    read_checkpoints,
    read_external_dbs,
    read_next_wal_sst_id,
    read_tracker,
    view_of,
)
from shale.format.sst_tables import read_sst
from shale.types import Epoch, Manifest, RunId, Seq, SortedRun, SstView, Tree, WalId


def read_manifest_v1(root: FlatTable) -> Manifest:
    """Read a ``ManifestV1`` table: every SST becomes a view under the SST's own id."""
    watermark = root.ulid(7)
    return Manifest(
        external_dbs=read_external_dbs(root, 1),
        initialized=root.u8(2) != 0,
        writer_epoch=Epoch(root.u64(3)),
        compactor_epoch=Epoch(root.u64(4)),
        replay_after_wal_id=WalId(root.u64(5)),
        next_wal_sst_id=read_next_wal_sst_id(root, 6),
        tree=Tree(
            l0=_read_views(root, 8, "ManifestV1.l0"),
            compacted=tuple(
                SortedRun(id=RunId(run.u32(0)), ssts=_read_views(run, 1, "SortedRun.ssts"))
                for run in root.required_tables(9, "ManifestV1.compacted")
            ),
            last_compacted_l0_sst_view_id=watermark,
            last_compacted_l0_sst_id=watermark,
        ),
        last_l0_clock_tick=root.i64(10),
        checkpoints=read_checkpoints(root, 11),
        last_l0_seq=Seq(root.u64(12)),
        wal_object_store_uri=root.string(13),
        recent_snapshot_min_seq=Seq(root.u64(14)),
        sequence_tracker=read_tracker(root, 15),
    )


def _read_views(table: FlatTable, slot: int, what: str) -> tuple[SstView, ...]:
    return tuple(_read_view(sst_table) for sst_table in table.required_tables(slot, what))


def _read_view(table: FlatTable) -> SstView:
    sst = read_sst(table)
    return view_of(table, sst.id, sst, read_optional_range(table, 2))
