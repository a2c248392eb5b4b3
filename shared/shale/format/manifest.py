"""Manifests: u16 version, then a FlatBuffer; no checksum (docs/format.md 4).

Version 2 is written, 1 and 2 are read.  The order in which tables are made is part of the format here: it is what
makes our bytes equal to SlateDB's.
"""

from collections.abc import Mapping, Sequence

from shale.format.buffer import Buffer
from shale.format.envelope import open_envelope, seal_envelope
from shale.format.flat_reader import FlatTable
from shale.format.flat_writer import FlatWriter
from shale.format.key_ranges import read_optional_range, write_range
from shale.format.manifest_parts import (
    read_checkpoints,
    read_external_dbs,
    read_next_wal_sst_id,
    read_tracker,
    view_of,
    write_checkpoints,
    write_external_dbs,
)
from shale.format.manifest_v1 import read_manifest_v1
from shale.format.sst_tables import read_sst_v2, write_sst_v2
from shale.format.tables import MANIFEST_V2, SEGMENT, SORTED_RUN_V2, SST_VIEW
from shale.types import Epoch, Manifest, RunId, Segment, Seq, SortedRun, Sst, SstView, Tree, Ulid, WalId

MANIFEST_VERSION = 2


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes that SlateDB 0.17 would write for this manifest."""
    writer = FlatWriter()
    return seal_envelope(MANIFEST_VERSION, writer.finish(_write_manifest(writer, manifest)))


def decode_manifest(data: Buffer, *, path: str | None = None) -> Manifest:
    """Read a manifest of version 1 or 2.

    Raises:
        InvalidVersion: another version.
        CorruptionError: the bytes are not a manifest, or contradict themselves.
    """
    version, root = open_envelope(data, what="manifest", versions=(1, MANIFEST_VERSION), path=path)
    return read_manifest_v1(root) if version == 1 else _read_manifest_v2(root)


def _write_manifest(writer: FlatWriter, manifest: Manifest) -> int:
    ssts = writer.references([write_sst_v2(writer, sst) for _, sst in sorted(manifest.ssts().items())])
    l0 = _write_views(writer, manifest.tree.l0)
    watermark = writer.ulid(manifest.tree.last_compacted_l0_sst_view_id)
    compacted = _write_runs(writer, manifest.tree.compacted)
    segments = writer.references([_write_segment(writer, segment) for segment in manifest.segments])
    extractor_name = writer.string(manifest.segment_extractor_name)
    checkpoints = write_checkpoints(writer, manifest.checkpoints)
    external_dbs = write_external_dbs(writer, manifest.external_dbs)
    tracker = writer.blob(manifest.sequence_tracker)
    return writer.table(
        MANIFEST_V2,
        (
            0,  # manifest_id: never written, the file name says it
            external_dbs,
            manifest.initialized,
            manifest.writer_epoch,
            manifest.compactor_epoch,
            manifest.replay_after_wal_id,
            manifest.next_wal_sst_id - 1,
            watermark,
            ssts,
            l0,
            compacted,
            manifest.last_l0_clock_tick,
            checkpoints,
            manifest.last_l0_seq,
            manifest.recent_snapshot_min_seq,
            tracker,
            segments,
            extractor_name,
        ),
    )


def _write_views(writer: FlatWriter, views: Sequence[SstView]) -> int:
    return writer.references([_write_view(writer, view) for view in views])


def _write_view(writer: FlatWriter, view: SstView) -> int:
    sst_id = writer.ulid(view.sst.id)
    visible_range = write_range(writer, view.visible_range)
    id_ = writer.ulid(view.id)
    return writer.table(SST_VIEW, (id_, sst_id, visible_range))


def _write_runs(writer: FlatWriter, runs: Sequence[SortedRun]) -> int:
    return writer.references([writer.table(SORTED_RUN_V2, (run.id, _write_views(writer, run.ssts))) for run in runs])


def _write_segment(writer: FlatWriter, segment: Segment) -> int:
    prefix = writer.blob(segment.prefix)
    l0 = _write_views(writer, segment.tree.l0)
    watermark = writer.ulid(segment.tree.last_compacted_l0_sst_view_id)
    compacted = _write_runs(writer, segment.tree.compacted)
    return writer.table(SEGMENT, (prefix, watermark, l0, compacted))


def _read_manifest_v2(root: FlatTable) -> Manifest:
    ssts = {sst.id: sst for sst in map(read_sst_v2, root.required_tables(8, "ManifestV2.ssts"))}
    return Manifest(
        external_dbs=read_external_dbs(root, 1),
        initialized=root.u8(2) != 0,
        writer_epoch=Epoch(root.u64(3)),
        compactor_epoch=Epoch(root.u64(4)),
        replay_after_wal_id=WalId(root.u64(5)),
        next_wal_sst_id=read_next_wal_sst_id(root, 6),
        tree=_read_tree(root, ssts, watermark_slot=7, l0_slot=9, compacted_slot=10),
        last_l0_clock_tick=root.i64(11),
        checkpoints=read_checkpoints(root, 12),
        last_l0_seq=Seq(root.u64(13)),
        recent_snapshot_min_seq=Seq(root.u64(14)),
        sequence_tracker=read_tracker(root, 15),
        segments=_read_segments(root, 16, ssts),
        segment_extractor_name=root.string(17),
    )


def _read_tree(
    table: FlatTable, ssts: Mapping[Ulid, Sst], *, watermark_slot: int, l0_slot: int, compacted_slot: int
) -> Tree:
    return Tree(
        l0=_read_views(table.required_tables(l0_slot, "l0"), ssts),
        compacted=tuple(
            SortedRun(id=RunId(run.u32(0)), ssts=_read_views(run.required_tables(1, "SortedRunV2.ssts"), ssts))
            for run in table.required_tables(compacted_slot, "compacted")
        ),
        last_compacted_l0_sst_view_id=table.ulid(watermark_slot),
    )


def _read_views(tables: Sequence[FlatTable], ssts: Mapping[Ulid, Sst]) -> tuple[SstView, ...]:
    return tuple(_read_view(table, ssts) for table in tables)


def _read_view(table: FlatTable, ssts: Mapping[Ulid, Sst]) -> SstView:
    id_ = table.required_ulid(0, "CompactedSsTableView.id")
    sst_id = table.required_ulid(1, "CompactedSsTableView.sst_id")
    sst = ssts.get(sst_id)
    if sst is None:
        raise table.corrupt(f"view {id_} shows the SST {sst_id}, which the manifest does not list")
    return view_of(table, id_, sst, read_optional_range(table, 2))


def _read_segments(root: FlatTable, slot: int, ssts: Mapping[Ulid, Sst]) -> tuple[Segment, ...]:
    segments = [
        Segment(
            prefix=table.blob(0) or b"",
            tree=_read_tree(table, ssts, watermark_slot=1, l0_slot=2, compacted_slot=3),
        )
        for table in root.tables(slot) or ()
    ]
    if any(not segment.prefix for segment in segments):
        raise root.corrupt("a segment has no prefix")
    return tuple(sorted(segments, key=lambda segment: segment.prefix))
