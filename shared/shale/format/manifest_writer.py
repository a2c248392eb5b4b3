"""Writes the tables of a manifest with the generated code; ``manifest_v1`` has the root of version 1.

The order in which tables and fields are written is part of the format: it is what makes our bytes equal to SlateDB's.
"""

from collections.abc import Sequence

from flatbuffers import Builder

from shale._generated import schema
from shale.format.flat.builder import (
    write_bytes,
    write_offsets,
    write_string,
    write_ulid,
    write_ulids,
    write_uuid,
)
from shale.format.manifest_image import WrittenTrees
from shale.format.sst_references import write_range, write_sst_v2
from shale.types import (
    Checkpoint,
    Epoch,
    ExternalDb,
    Manifest,
    Segment,
    SortedRun,
    SstView,
)


def write_trees(builder: Builder, manifest: Manifest) -> WrittenTrees:
    """Write SSTs, root tree and segments with the generated code."""
    return WrittenTrees(
        ssts=write_offsets(builder, [write_sst_v2(builder, sst) for _, sst in sorted(manifest.ssts().items())]),
        l0=_write_views(builder, manifest.tree.l0),
        watermark=write_ulid(builder, manifest.tree.last_compacted_l0_sst_view_id),
        compacted=_write_runs(builder, manifest.tree.compacted),
        segments=write_offsets(builder, [_write_segment(builder, segment) for segment in manifest.segments]),
    )


def write_manifest(builder: Builder, manifest: Manifest, trees: WrittenTrees) -> int:
    """Write the root table of version 2, after its trees, and return its offset."""
    extractor_name = write_string(builder, manifest.segment_extractor_name)
    checkpoints = write_checkpoints(builder, manifest.checkpoints)
    external_dbs = write_external_dbs(builder, manifest.external_dbs)
    tracker = write_bytes(builder, manifest.sequence_tracker)
    # ``manifest_id`` is never written: the file name holds it.
    schema.ManifestV2Start(builder)
    schema.ManifestV2AddRecentSnapshotMinSeq(builder, manifest.recent_snapshot_min_seq)
    schema.ManifestV2AddLastL0Seq(builder, manifest.last_l0_seq)
    schema.ManifestV2AddLastL0ClockTick(builder, manifest.last_l0_clock_tick)
    schema.ManifestV2AddWalIdLastSeen(builder, manifest.next_wal_sst_id - 1)
    schema.ManifestV2AddReplayAfterWalId(builder, manifest.replay_after_wal_id)
    schema.ManifestV2AddCompactorEpoch(builder, manifest.compactor_epoch)
    schema.ManifestV2AddWriterEpoch(builder, manifest.writer_epoch)
    schema.ManifestV2AddSegmentExtractorName(builder, extractor_name)
    schema.ManifestV2AddSegments(builder, trees.segments)
    schema.ManifestV2AddSequenceTracker(builder, tracker)
    schema.ManifestV2AddCheckpoints(builder, checkpoints)
    schema.ManifestV2AddCompacted(builder, trees.compacted)
    schema.ManifestV2AddL0(builder, trees.l0)
    schema.ManifestV2AddSsts(builder, trees.ssts)
    schema.ManifestV2AddLastCompactedL0SstViewId(builder, trees.watermark)
    schema.ManifestV2AddExternalDbs(builder, external_dbs)
    schema.ManifestV2AddInitialized(builder, manifest.initialized)
    return schema.ManifestV2End(builder)


def _write_views(builder: Builder, views: Sequence[SstView]) -> int:
    return write_offsets(builder, [_write_view(builder, view) for view in views])


def _write_view(builder: Builder, view: SstView) -> int:
    sst_id = write_ulid(builder, view.sst.id)
    visible_range = write_range(builder, view.visible_range)
    id_ = write_ulid(builder, view.id)
    schema.CompactedSsTableViewStart(builder)
    schema.CompactedSsTableViewAddVisibleRange(builder, visible_range)
    schema.CompactedSsTableViewAddSstId(builder, sst_id)
    schema.CompactedSsTableViewAddId(builder, id_)
    return schema.CompactedSsTableViewEnd(builder)


def _write_runs(builder: Builder, runs: Sequence[SortedRun]) -> int:
    tables = []
    for run in runs:
        views = _write_views(builder, run.ssts)
        schema.SortedRunV2Start(builder)
        schema.SortedRunV2AddSsts(builder, views)
        schema.SortedRunV2AddId(builder, run.id)
        tables.append(schema.SortedRunV2End(builder))
    return write_offsets(builder, tables)


def _write_segment(builder: Builder, segment: Segment) -> int:
    prefix = write_bytes(builder, segment.prefix)
    l0 = _write_views(builder, segment.tree.l0)
    watermark = write_ulid(builder, segment.tree.last_compacted_l0_sst_view_id)
    compacted = _write_runs(builder, segment.tree.compacted)
    schema.SegmentStart(builder)
    schema.SegmentAddCompacted(builder, compacted)
    schema.SegmentAddL0(builder, l0)
    schema.SegmentAddLastCompactedL0SstViewId(builder, watermark)
    schema.SegmentAddPrefix(builder, prefix)
    return schema.SegmentEnd(builder)


def write_checkpoints(builder: Builder, checkpoints: Sequence[Checkpoint]) -> int:
    """Write a vector of ``Checkpoint``; only those of writers have metadata, which SlateDB reads and drops."""
    tables = []
    for checkpoint in checkpoints:
        id_ = write_uuid(builder, checkpoint.id)
        name = write_string(builder, checkpoint.name)
        epoch = checkpoint.writer_epoch
        metadata = None if epoch is None else _write_writer_checkpoint(builder, epoch)
        schema.CheckpointStart(builder)
        schema.CheckpointAddManifestId(builder, checkpoint.manifest_id)
        schema.CheckpointAddName(builder, name)
        if metadata is not None:
            schema.CheckpointAddMetadata(builder, metadata)
        schema.CheckpointAddCheckpointCreateTimeS(builder, checkpoint.create_s)
        schema.CheckpointAddCheckpointExpireTimeS(builder, checkpoint.expire_s)
        schema.CheckpointAddId(builder, id_)
        if metadata is not None:
            schema.CheckpointAddMetadataType(builder, schema.CheckpointMetadata.WriterCheckpoint)
        tables.append(schema.CheckpointEnd(builder))
    return write_offsets(builder, tables)


def _write_writer_checkpoint(builder: Builder, epoch: Epoch) -> int:
    schema.WriterCheckpointStart(builder)
    schema.WriterCheckpointAddEpoch(builder, epoch)
    return schema.WriterCheckpointEnd(builder)


def write_external_dbs(builder: Builder, external_dbs: Sequence[ExternalDb]) -> int:
    """Write a vector of ``ExternalDb``; it is absent when there are none."""
    if not external_dbs:
        return 0
    tables = []
    for external_db in external_dbs:
        path = write_string(builder, external_db.path)
        source = write_uuid(builder, external_db.source_checkpoint_id)
        final = write_uuid(builder, external_db.final_checkpoint_id)
        sst_ids = write_ulids(builder, external_db.sst_ids)
        schema.ExternalDbStart(builder)
        schema.ExternalDbAddSstIds(builder, sst_ids)
        schema.ExternalDbAddFinalCheckpointId(builder, final)
        schema.ExternalDbAddSourceCheckpointId(builder, source)
        schema.ExternalDbAddPath(builder, path)
        tables.append(schema.ExternalDbEnd(builder))
    return write_offsets(builder, tables)
