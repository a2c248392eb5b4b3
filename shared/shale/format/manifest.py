"""Manifests: u16 version, then a FlatBuffer; no checksum (docs/reference/format.md 4).

Version 2 is written, 1 and 2 are read.  The order in which tables and fields are written is part of the format here: it
is what makes our bytes equal to SlateDB's.
"""

from collections.abc import Mapping, Sequence

from flatbuffers import Builder

from shale._generated import schema
from shale.core.bytes_like import BytesLike
from shale.format.envelope import open_envelope, seal_envelope
from shale.format.flat.accessors import (
    Table,
    bytes_of,
    corrupt,
    optional_ulid,
    optional_uuid,
    string_of,
    tables_of,
    ulid_of,
    uuid_of,
)
from shale.format.flat.builder import (
    finish,
    write_bytes,
    write_offsets,
    write_string,
    write_ulid,
    write_ulids,
    write_uuid,
)
from shale.format.flat.verifier import Verifier
from shale.format.sst_references import read_optional_range, read_sst, write_range, write_sst_v2
from shale.types import (
    EMPTY_SEQUENCE_TRACKER,
    U64_MAX,
    Checkpoint,
    Epoch,
    ExternalDb,
    KeyRange,
    Manifest,
    ManifestId,
    RunId,
    Segment,
    Seq,
    SortedRun,
    Sst,
    SstView,
    Tree,
    Ulid,
    WalId,
)

MANIFEST_VERSION = 2
_ROOTS = {1: "ManifestV1", MANIFEST_VERSION: "ManifestV2"}
_SST_BYTES = 400
"""About what an SST and its view take: the builder's buffer then need not grow, which copies it."""


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the bytes that SlateDB 0.17 would write for this manifest."""
    ssts = manifest.ssts()
    builder = Builder(1024 + _SST_BYTES * len(ssts))
    return seal_envelope(MANIFEST_VERSION, finish(builder, _write_manifest(builder, manifest, ssts)))


def decode_manifest(data: BytesLike, *, path: str | None = None) -> Manifest:
    """Read a manifest of version 1 or 2.

    Raises:
        InvalidVersion: another version.
        CorruptionError: the bytes are not a manifest, or contradict themselves.
    """
    version, source = open_envelope(data, what="manifest", roots=_ROOTS, path=path)
    if version == 1:
        return _read_manifest_v1(source, schema.ManifestV1.GetRootAs(source.data))
    return _read_manifest_v2(source, schema.ManifestV2.GetRootAs(source.data))


def _write_manifest(builder: Builder, manifest: Manifest, ssts: Mapping[Ulid, Sst]) -> int:
    sst_tables = write_offsets(builder, [write_sst_v2(builder, sst) for _, sst in sorted(ssts.items())])
    l0 = _write_views(builder, manifest.tree.l0)
    watermark = write_ulid(builder, manifest.tree.last_compacted_l0_sst_view_id)
    compacted = _write_runs(builder, manifest.tree.compacted)
    segments = write_offsets(builder, [_write_segment(builder, segment) for segment in manifest.segments])
    extractor_name = write_string(builder, manifest.segment_extractor_name)
    checkpoints = _write_checkpoints(builder, manifest.checkpoints)
    external_dbs = _write_external_dbs(builder, manifest.external_dbs)
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
    schema.ManifestV2AddSegments(builder, segments)
    schema.ManifestV2AddSequenceTracker(builder, tracker)
    schema.ManifestV2AddCheckpoints(builder, checkpoints)
    schema.ManifestV2AddCompacted(builder, compacted)
    schema.ManifestV2AddL0(builder, l0)
    schema.ManifestV2AddSsts(builder, sst_tables)
    schema.ManifestV2AddLastCompactedL0SstViewId(builder, watermark)
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


def _write_checkpoints(builder: Builder, checkpoints: Sequence[Checkpoint]) -> int:
    """Write a vector of ``Checkpoint``, without metadata, which no reader uses."""
    tables = []
    for checkpoint in checkpoints:
        id_ = write_uuid(builder, checkpoint.id)
        name = write_string(builder, checkpoint.name)
        schema.CheckpointStart(builder)
        schema.CheckpointAddManifestId(builder, checkpoint.manifest_id)
        schema.CheckpointAddName(builder, name)
        schema.CheckpointAddCheckpointCreateTimeS(builder, checkpoint.create_s)
        schema.CheckpointAddCheckpointExpireTimeS(builder, checkpoint.expire_s)
        schema.CheckpointAddId(builder, id_)
        tables.append(schema.CheckpointEnd(builder))
    return write_offsets(builder, tables)


def _write_external_dbs(builder: Builder, external_dbs: Sequence[ExternalDb]) -> int:
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


def _read_manifest_v2(source: Verifier, root: Table) -> Manifest:
    listed = [read_sst(source, table) for table in tables_of(root.Ssts, root.SstsLength())]
    ssts = {sst.id: sst for sst in listed}
    return Manifest(
        external_dbs=_read_external_dbs(root),
        initialized=bool(root.Initialized()),
        writer_epoch=Epoch(root.WriterEpoch()),
        compactor_epoch=Epoch(root.CompactorEpoch()),
        replay_after_wal_id=WalId(root.ReplayAfterWalId()),
        next_wal_sst_id=_read_next_wal_sst_id(source, root),
        tree=_read_tree(source, root, ssts),
        last_l0_clock_tick=root.LastL0ClockTick(),
        checkpoints=_read_checkpoints(root),
        last_l0_seq=Seq(root.LastL0Seq()),
        recent_snapshot_min_seq=Seq(root.RecentSnapshotMinSeq()),
        sequence_tracker=_read_tracker(source, root),
        segments=_read_segments(source, root, ssts),
        segment_extractor_name=string_of(root.SegmentExtractorName()),
    )


def _read_tree(source: Verifier, table: Table, ssts: Mapping[Ulid, Sst]) -> Tree:
    """Read the tree of a ``ManifestV2`` or a ``Segment``, which name its fields alike."""
    runs = []
    for run in tables_of(table.Compacted, table.CompactedLength()):
        views = tuple(_read_view(source, view, ssts) for view in tables_of(run.Ssts, run.SstsLength()))
        runs.append(SortedRun(id=RunId(run.Id()), ssts=views))
    return Tree(
        l0=tuple(_read_view(source, view, ssts) for view in tables_of(table.L0, table.L0Length())),
        compacted=tuple(runs),
        last_compacted_l0_sst_view_id=optional_ulid(table.LastCompactedL0SstViewId()),
    )


def _read_view(source: Verifier, table: Table, ssts: Mapping[Ulid, Sst]) -> SstView:
    id_ = ulid_of(table.Id())
    sst_id = ulid_of(table.SstId())
    sst = ssts.get(sst_id)
    if sst is None:
        raise corrupt(source, table, f"view {id_} shows the SST {sst_id}, which the manifest does not list")
    return _view_of(source, table, id_, sst, read_optional_range(source, table.VisibleRange()))


def _view_of(source: Verifier, table: Table, view_id: Ulid, sst: Sst, visible_range: KeyRange | None) -> SstView:
    """Return a view, if it can show anything: SlateDB aborts when a visible range misses the whole SST."""
    view = SstView(id=view_id, sst=sst, visible_range=visible_range)
    if visible_range is not None and view.effective_range.is_empty:
        raise corrupt(source, table, f"view {view_id} shows no key of its SST")
    return view


def _read_segments(source: Verifier, root: Table, ssts: Mapping[Ulid, Sst]) -> tuple[Segment, ...]:
    segments = [
        Segment(prefix=bytes_of(table.PrefixAsNumpy()) or b"", tree=_read_tree(source, table, ssts))
        for table in tables_of(root.Segments, root.SegmentsLength())
    ]
    if any(not segment.prefix for segment in segments):
        raise corrupt(source, root, "a segment has no prefix")
    return tuple(sorted(segments, key=lambda segment: segment.prefix))


def _read_checkpoints(root: Table) -> tuple[Checkpoint, ...]:
    return tuple(
        Checkpoint(
            id=uuid_of(table.Id()),
            manifest_id=ManifestId(table.ManifestId()),
            expire_s=table.CheckpointExpireTimeS(),
            create_s=table.CheckpointCreateTimeS(),
            name=string_of(table.Name()),
        )
        for table in tables_of(root.Checkpoints, root.CheckpointsLength())
    )


def _read_external_dbs(root: Table) -> tuple[ExternalDb, ...]:
    return tuple(
        ExternalDb(
            path=string_of(table.Path()) or "",
            source_checkpoint_id=uuid_of(table.SourceCheckpointId()),
            final_checkpoint_id=optional_uuid(table.FinalCheckpointId()),
            sst_ids=tuple(map(ulid_of, tables_of(table.SstIds, table.SstIdsLength()))),
        )
        for table in tables_of(root.ExternalDbs, root.ExternalDbsLength())
    )


def _read_next_wal_sst_id(source: Verifier, root: Table) -> WalId:
    """Return ``wal_id_last_seen`` plus one."""
    last_seen = root.WalIdLastSeen()
    if last_seen == U64_MAX:
        raise corrupt(source, root, "no WAL id is left")
    return WalId(last_seen + 1)


def _read_tracker(source: Verifier, root: Table) -> bytes:
    """Return the sequence tracker, still encoded.  SlateDB aborts on an empty vector, so it is refused here."""
    tracker = bytes_of(root.SequenceTrackerAsNumpy())
    if tracker == b"":
        raise corrupt(source, root, "the sequence tracker has no bytes")
    return EMPTY_SEQUENCE_TRACKER if tracker is None else tracker


def _read_manifest_v1(source: Verifier, root: Table) -> Manifest:
    """Read a manifest of version 1, where an SST and its view are one table (docs/reference/format.md 4.4)."""
    watermark = optional_ulid(root.L0LastCompacted())
    runs = []
    for run in tables_of(root.Compacted, root.CompactedLength()):
        views = tuple(_read_view_v1(source, table) for table in tables_of(run.Ssts, run.SstsLength()))
        runs.append(SortedRun(id=RunId(run.Id()), ssts=views))
    return Manifest(
        external_dbs=_read_external_dbs(root),
        initialized=bool(root.Initialized()),
        writer_epoch=Epoch(root.WriterEpoch()),
        compactor_epoch=Epoch(root.CompactorEpoch()),
        replay_after_wal_id=WalId(root.ReplayAfterWalId()),
        next_wal_sst_id=_read_next_wal_sst_id(source, root),
        tree=Tree(
            l0=tuple(_read_view_v1(source, table) for table in tables_of(root.L0, root.L0Length())),
            compacted=tuple(runs),
            last_compacted_l0_sst_view_id=watermark,
            last_compacted_l0_sst_id=watermark,
        ),
        last_l0_clock_tick=root.LastL0ClockTick(),
        checkpoints=_read_checkpoints(root),
        last_l0_seq=Seq(root.LastL0Seq()),
        wal_object_store_uri=string_of(root.WalObjectStoreUri()),
        recent_snapshot_min_seq=Seq(root.RecentSnapshotMinSeq()),
        sequence_tracker=_read_tracker(source, root),
    )


def _read_view_v1(source: Verifier, table: Table) -> SstView:
    sst = read_sst(source, table)
    return _view_of(source, table, sst.id, sst, read_optional_range(source, table.VisibleRange()))
