"""Manifests: u16 version, then a FlatBuffer; no checksum (docs/reference/format.md 4).

Version 2 is written, 1 and 2 are read.  The order in which tables and fields are written is part of the format here: it
is what makes our bytes equal to SlateDB's.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

from flatbuffers import Builder

from shale._generated import schema
from shale.core.bytes_like import BytesLike
from shale.errors import CorruptionError
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
    vector_start,
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
from shale.format.manifest_columns import LEFT_OUT, ViewColumn, read_ssts
from shale.format.manifest_image import VIEWS_MIN, TreeWriter, WrittenTrees
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
_COLUMNS_BYTES_MIN = 8 * 1024
"""Larger manifests, from some 40 SSTs on, are read by columns."""
_SSTS_SLOT, _L0_SLOT, _SEGMENT_L0_SLOT, _RUN_SSTS_SLOT = 8, 9, 2, 1


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the bytes that SlateDB 0.17 would write for this manifest."""
    return ManifestEncoder().encode(manifest)


def is_lossless(manifest: Manifest) -> bool:
    """Return whether decoding gives the same value: version 2 lacks two fields of version 1."""
    return manifest.wal_object_store_uri is None and all(
        tree.last_compacted_l0_sst_id is None for _, tree in manifest.trees()
    )


class ManifestEncoder:
    """Encodes the versions of one manifest, and reuses what it made for the version before."""

    def __init__(self, views_min: int = VIEWS_MIN) -> None:
        """``views_min``: how many views a manifest must have to be written with a kernel."""
        self._trees = TreeWriter(views_min)

    def encode(self, manifest: Manifest) -> bytes:
        """Return the bytes that SlateDB 0.17 would write for this manifest."""
        count = sum(len(tree.l0) + sum(len(run.ssts) for run in tree.compacted) for _, tree in manifest.trees())
        builder = Builder(1024 + _SST_BYTES * count)
        trees = self._trees.write(builder, manifest) or _write_trees(builder, manifest)
        return seal_envelope(MANIFEST_VERSION, finish(builder, _write_manifest(builder, manifest, trees)))


def decode_manifest(data: BytesLike, *, path: str | None = None) -> Manifest:
    """Read a manifest of version 1 or 2.

    Raises:
        InvalidVersion: another version.
        CorruptionError: the bytes are not a manifest, or contradict themselves.
    """
    found = decode_by_columns(data, path) if len(data) >= _COLUMNS_BYTES_MIN else None
    return decode_plain(data, path) if found is None else found


def decode_by_columns(data: BytesLike, path: str | None = None) -> Manifest | None:
    """Read a manifest of version 2 that has many SSTs; ``None`` if the plain reader must read it or explain it."""
    with suppress(CorruptionError):
        version, source = open_envelope(data, what="manifest", roots=_ROOTS, path=path, left_out=LEFT_OUT)
        if version == MANIFEST_VERSION:
            return _read_manifest_v2(source, schema.ManifestV2.GetRootAs(source.data), by_columns=True)
    return None


def decode_plain(data: BytesLike, path: str | None = None) -> Manifest:
    """Read a manifest with the generated code; see ``decode_manifest``."""
    version, source = open_envelope(data, what="manifest", roots=_ROOTS, path=path)
    if version == 1:
        return _read_manifest_v1(source, schema.ManifestV1.GetRootAs(source.data))
    return _read_manifest_v2(source, schema.ManifestV2.GetRootAs(source.data))


def _write_trees(builder: Builder, manifest: Manifest) -> WrittenTrees:
    """Write SSTs, root tree and segments with the generated code."""
    return WrittenTrees(
        ssts=write_offsets(builder, [write_sst_v2(builder, sst) for _, sst in sorted(manifest.ssts().items())]),
        l0=_write_views(builder, manifest.tree.l0),
        watermark=write_ulid(builder, manifest.tree.last_compacted_l0_sst_view_id),
        compacted=_write_runs(builder, manifest.tree.compacted),
        segments=write_offsets(builder, [_write_segment(builder, segment) for segment in manifest.segments]),
    )


def _write_manifest(builder: Builder, manifest: Manifest, trees: WrittenTrees) -> int:
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


def _read_manifest_v2(source: Verifier, root: Table, *, by_columns: bool = False) -> Manifest:
    views = _view_column(source, root) if by_columns else _plain_views(source, root)
    return Manifest(
        external_dbs=_read_external_dbs(root),
        initialized=bool(root.Initialized()),
        writer_epoch=Epoch(root.WriterEpoch()),
        compactor_epoch=Epoch(root.CompactorEpoch()),
        replay_after_wal_id=WalId(root.ReplayAfterWalId()),
        next_wal_sst_id=_read_next_wal_sst_id(source, root),
        tree=_read_tree(root, views),
        last_l0_clock_tick=root.LastL0ClockTick(),
        checkpoints=_read_checkpoints(root),
        last_l0_seq=Seq(root.LastL0Seq()),
        recent_snapshot_min_seq=Seq(root.RecentSnapshotMinSeq()),
        sequence_tracker=_read_tracker(source, root),
        segments=_read_segments(source, root, views),
        segment_extractor_name=string_of(root.SegmentExtractorName()),
    )


_ReadViews: TypeAlias = Callable[[Callable[[int], Table], int], tuple[SstView, ...]]
"""Returns the views of a vector, given its accessors of one element and of its length; called in the order of trees."""


def _plain_views(source: Verifier, root: Table) -> _ReadViews:
    """Read each table with the generated code."""
    listed = [read_sst(source, table) for table in tables_of(root.Ssts, root.SstsLength())]
    ssts = {sst.id: sst for sst in listed}

    def read(get: Callable[[int], Table], count: int) -> tuple[SstView, ...]:
        return tuple(_read_view(source, table, ssts) for table in tables_of(get, count))

    return read


def _view_column(source: Verifier, root: Table) -> _ReadViews:
    """Read all tables of SSTs and views at once."""
    ssts = read_ssts(source, vector_start(root, _SSTS_SLOT), root.SstsLength())
    vectors = []
    segments = tables_of(root.Segments, root.SegmentsLength())
    for table, l0_slot in ((root, _L0_SLOT), *((segment, _SEGMENT_L0_SLOT) for segment in segments)):
        vectors.append((vector_start(table, l0_slot), table.L0Length()))
        runs = tables_of(table.Compacted, table.CompactedLength())
        vectors += [(vector_start(run, _RUN_SSTS_SLOT), run.SstsLength()) for run in runs]
    views = ViewColumn(source, vectors, ssts)
    return lambda _, count: views.take(count)


def _read_tree(table: Table, views: _ReadViews) -> Tree:
    """Read the tree of a ``ManifestV2`` or a ``Segment``, which name their fields alike."""
    l0 = views(table.L0, table.L0Length())
    runs = [
        SortedRun(id=RunId(run.Id()), ssts=views(run.Ssts, run.SstsLength()))
        for run in tables_of(table.Compacted, table.CompactedLength())
    ]
    return Tree(
        l0=l0, compacted=tuple(runs), last_compacted_l0_sst_view_id=optional_ulid(table.LastCompactedL0SstViewId())
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


def _read_segments(source: Verifier, root: Table, views: _ReadViews) -> tuple[Segment, ...]:
    segments = [
        Segment(prefix=bytes_of(table.PrefixAsNumpy()) or b"", tree=_read_tree(table, views))
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
