"""Reads the tables of a manifest of version 1 or 2; those with many SSTs by columns."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

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
from shale.format.flat.verifier import Verifier
from shale.format.manifest_columns import ViewColumn, read_ssts
from shale.format.sst_references import read_optional_range, read_sst
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

_SSTS_SLOT, _L0_SLOT, _SEGMENT_L0_SLOT, _RUN_SSTS_SLOT = 8, 9, 2, 1


def read_manifest_v2(source: Verifier, root: Table, *, by_columns: bool = False) -> Manifest:
    """Read a manifest of version 2; ``by_columns``: many SSTs at once."""
    views = _view_column(source, root) if by_columns else _plain_views(source, root)
    return replace(
        _read_root(source, root),
        tree=_read_tree(root, views),
        segments=_read_segments(source, root, views),
        segment_extractor_name=string_of(root.SegmentExtractorName()),
    )


def _read_root(source: Verifier, root: Table) -> Manifest:
    """Read the fields that both versions have alike."""
    return Manifest(
        external_dbs=_read_external_dbs(root),
        initialized=bool(root.Initialized()),
        writer_epoch=Epoch(root.WriterEpoch()),
        compactor_epoch=Epoch(root.CompactorEpoch()),
        replay_after_wal_id=WalId(root.ReplayAfterWalId()),
        next_wal_sst_id=_read_next_wal_sst_id(source, root),
        last_l0_clock_tick=root.LastL0ClockTick(),
        checkpoints=_read_checkpoints(root),
        last_l0_seq=Seq(root.LastL0Seq()),
        recent_snapshot_min_seq=Seq(root.RecentSnapshotMinSeq()),
        sequence_tracker=_read_tracker(source, root),
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


def read_manifest_v1(source: Verifier, root: Table) -> Manifest:
    """Read a manifest of version 1, where an SST and its view are one table (docs/reference/format.md 4.4)."""
    watermark = optional_ulid(root.L0LastCompacted())
    runs = []
    for run in tables_of(root.Compacted, root.CompactedLength()):
        views = tuple(_read_view_v1(source, table) for table in tables_of(run.Ssts, run.SstsLength()))
        runs.append(SortedRun(id=RunId(run.Id()), ssts=views))
    return replace(
        _read_root(source, root),
        tree=Tree(
            l0=tuple(_read_view_v1(source, table) for table in tables_of(root.L0, root.L0Length())),
            compacted=tuple(runs),
            last_compacted_l0_sst_view_id=watermark,
            last_compacted_l0_sst_id=watermark,
        ),
        wal_object_store_uri=string_of(root.WalObjectStoreUri()),
    )


def _read_view_v1(source: Verifier, table: Table) -> SstView:
    sst = read_sst(source, table)
    return _view_of(source, table, sst.id, sst, read_optional_range(source, table.VisibleRange()))
